#include "serve/http2_session.h"

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "serve/token_bucket.h"

namespace graphbox::serve {
namespace {

using Clock = std::chrono::steady_clock;

// Of the client's data; more is sent when half of it was processed.
constexpr std::int32_t kStreamWindowBytes = 1 << 20;
constexpr std::int32_t kConnectionWindowBytes = 16 << 20;
constexpr std::uint32_t kMaxFrameBytes = 1 << 18;
// Of the messages of one streaming call that are reported and not processed; one is reported in any case.
constexpr std::size_t kMaxPendingBytes = 8 << 20;
constexpr std::size_t kFrameHeaderBytes = 9;
constexpr std::size_t kHeaderOverheadBytes = 32;  // RFC 9113, 6.5.2
// Headers beyond this many times their limit end the connection instead of the call.
constexpr std::size_t kHeaderFloodFactor = 8;
constexpr std::string_view kContentType = "application/grpc";

nghttp2_nv header_of(std::string_view name, std::string_view value) {
  // nghttp2 copies both: no flags say that it need not.
  return {reinterpret_cast<std::uint8_t*>(const_cast<char*>(name.data())),
          reinterpret_cast<std::uint8_t*>(const_cast<char*>(value.data())), name.size(), value.size(),
          NGHTTP2_NV_FLAG_NONE};
}

std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

bool is_grpc(std::string_view content_type) {
  if (content_type.substr(0, kContentType.size()) != kContentType) {
    return false;
  }
  const std::string_view rest = content_type.substr(kContentType.size());
  return rest.empty() || rest.front() == ';' || rest == "+proto" || rest.substr(0, 7) == "+proto;";
}

struct Call {
  std::string path;
  std::string method;
  std::vector<std::pair<std::string, std::string>> headers;
  std::size_t header_bytes = 0;
  std::int64_t timeout_ns = -1;
  bool is_streaming = false;
  bool headers_refused = false;   // too large
  bool is_reported = false;       // by kOpened or kCall
  bool request_ended = false;     // by the client
  bool is_refused = false;        // the rest of the request is ignored
  MessageReader reader;
  Message message;                // of a unary call
  bool has_message = false;
  std::size_t pending_messages = 0;  // of a streaming call: reported, not processed
  std::size_t pending_bytes = 0;
  std::string backlog;             // received, but not read while too much is pending: at most its window
  std::size_t backlog_read = 0;
  std::size_t buffered_bytes = 0;  // as counted for the connection
  Clock::time_point progressed;   // when bytes of a message last came in

  bool answer_begun = false;
  bool answer_ended = false;      // `finish` was called
  std::deque<std::string> queue;  // of the answer: prefixes and messages
  std::size_t sent_of_front = 0;
  int status = 0;
  std::string status_text;

  std::string_view unread() const { return std::string_view(backlog).substr(backlog_read); }

  void keep(std::string_view data) {
    if (2 * backlog_read >= backlog.size()) {
      backlog.erase(0, std::exchange(backlog_read, 0));
    }
    backlog.append(data);
  }

  std::string_view header(std::string_view name) const {
    for (const auto& [known, value] : headers) {
      if (known == name) {
        return value;
      }
    }
    return {};
  }
};

}  // namespace

class Http2Session::State {
 public:
  State(const SessionLimits& limits, std::vector<std::string> streaming_paths, bool announce_calls);
  ~State() { nghttp2_session_del(session_); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  std::vector<Event> receive(std::string_view data);
  std::string output(std::size_t max_bytes);
  void send(std::int32_t stream, std::string_view message, bool compressed, std::string_view encoding);
  void finish(std::int32_t stream, int status, std::string_view text);
  std::vector<Event> processed(std::int32_t stream, std::size_t message_bytes);
  std::vector<Event> refuse_incomplete(std::int64_t stalled_ns, int status, std::string_view text);
  void terminate(std::uint32_t error_code, std::string_view reason);

  Call* find(std::int32_t stream) const {
    const auto found = calls_.find(stream);
    return found == calls_.end() ? nullptr : found->second.get();
  }

  nghttp2_session* session_ = nullptr;
  std::unordered_map<std::int32_t, std::unique_ptr<Call>> calls_;
  std::size_t buffered_bytes_ = 0;
  std::size_t queued_bytes_ = 0;
  std::uint64_t sent_bytes_ = 0;
  std::size_t output_limit_ = 0;
  std::string output_;
  std::string failure_;

 private:
  static nghttp2_session_callbacks* callbacks();
  void on_headers_begin(std::int32_t stream);
  int on_header(Call& call, std::string_view name, std::string_view value);
  void on_request(std::int32_t stream, Call& call);
  void on_data(std::int32_t stream, std::string_view data);
  std::size_t read_messages(std::int32_t stream, Call& call, std::string_view data);
  void check_buffered(std::int32_t stream, Call& call);
  bool may_report(const Call& call) const;
  void on_message(std::int32_t stream, Call& call);
  void on_request_end(std::int32_t stream, Call& call);
  void on_close(std::int32_t stream);
  void on_frame(const nghttp2_frame& frame);
  void on_control_frame();
  void count_buffered(Call& call);
  void refuse(std::int32_t stream, Call& call, Status status, std::string_view text);
  void refuse_http(std::int32_t stream, Call& call, std::string_view status);
  void ignore_rest(Call& call);
  void begin_answer(std::int32_t stream, Call& call, std::string_view encoding);
  void submit_trailers(std::int32_t stream, Call& call);
  ssize_t read_answer(std::int32_t stream, std::size_t length, std::uint32_t* flags);
  int write_answer(std::int32_t stream, const std::uint8_t* frame_header, std::size_t length);

  SessionLimits limits_;
  std::vector<std::string> streaming_paths_;
  bool announce_calls_;
  TokenBucket control_frames_;
  TokenBucket resets_;
  std::vector<Event> events_;
};

// Callbacks of nghttp2: each finds the session and passes on.

nghttp2_session_callbacks* Http2Session::State::callbacks() {
  nghttp2_session_callbacks* made = nullptr;
  if (nghttp2_session_callbacks_new(&made) != 0) {
    throw std::bad_alloc();
  }
  nghttp2_session_callbacks_set_on_begin_headers_callback(
      made, [](nghttp2_session*, const nghttp2_frame* frame, void* state) {
        if (frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
          static_cast<State*>(state)->on_headers_begin(frame->hd.stream_id);
        }
        return 0;
      });
  nghttp2_session_callbacks_set_on_header_callback(
      made, [](nghttp2_session*, const nghttp2_frame* frame, const std::uint8_t* name, std::size_t name_bytes,
               const std::uint8_t* value, std::size_t value_bytes, std::uint8_t, void* pointer) {
        State& state = *static_cast<State*>(pointer);
        Call* call = state.find(frame->hd.stream_id);
        return call == nullptr ? 0 : state.on_header(*call, text_of(name, name_bytes), text_of(value, value_bytes));
      });
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
      made, [](nghttp2_session*, std::uint8_t, std::int32_t stream, const std::uint8_t* data, std::size_t size,
               void* pointer) {
        static_cast<State*>(pointer)->on_data(stream, text_of(data, size));
        return 0;
      });
  nghttp2_session_callbacks_set_on_frame_recv_callback(
      made, [](nghttp2_session*, const nghttp2_frame* frame, void* state) {
        static_cast<State*>(state)->on_frame(*frame);
        return 0;
      });
  nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(
      made, [](nghttp2_session*, const nghttp2_frame*, int, void* state) {
        static_cast<State*>(state)->on_control_frame();
        return 0;
      });
  nghttp2_session_callbacks_set_on_stream_close_callback(
      made, [](nghttp2_session*, std::int32_t stream, std::uint32_t, void* state) {
        static_cast<State*>(state)->on_close(stream);
        return 0;
      });
  nghttp2_session_callbacks_set_on_frame_send_callback(
      made, [](nghttp2_session* session, const nghttp2_frame* frame, void* pointer) {
        // The answer is complete and the client still sends: tell it to stop (RFC 9113, 8.1).
        const bool ends = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
        if (ends && frame->hd.type == NGHTTP2_HEADERS) {
          const Call* call = static_cast<State*>(pointer)->find(frame->hd.stream_id);
          if (call != nullptr && !call->request_ended) {
            nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_NO_ERROR);
          }
        }
        return 0;
      });
  nghttp2_session_callbacks_set_send_callback(
      made, [](nghttp2_session*, const std::uint8_t* data, std::size_t size, int, void* pointer) -> ssize_t {
        State& state = *static_cast<State*>(pointer);
        if (state.output_.size() >= state.output_limit_) {
          return NGHTTP2_ERR_WOULDBLOCK;
        }
        state.output_.append(reinterpret_cast<const char*>(data), size);
        return static_cast<ssize_t>(size);
      });
  nghttp2_session_callbacks_set_send_data_callback(
      made, [](nghttp2_session*, nghttp2_frame* frame, const std::uint8_t* frame_header, std::size_t length,
               nghttp2_data_source*, void* pointer) {
        return static_cast<State*>(pointer)->write_answer(frame->hd.stream_id, frame_header, length);
      });
  return made;
}

Http2Session::State::State(const SessionLimits& limits, std::vector<std::string> streaming_paths, bool announce_calls)
    : limits_(limits),
      streaming_paths_(std::move(streaming_paths)),
      announce_calls_(announce_calls),
      control_frames_(limits.control_frames_burst, limits.control_frames_per_second),
      resets_(limits.resets_burst, limits.resets_per_second) {
  nghttp2_session_callbacks* made = callbacks();
  nghttp2_option* option = nullptr;
  if (nghttp2_option_new(&option) == 0) {
    // Closed streams are kept for priorities alone, which gRPC does not use.
    nghttp2_option_set_no_closed_streams(option, 1);
    // The window of a streaming call opens as its messages are read.
    nghttp2_option_set_no_auto_window_update(option, 1);
#ifdef GRAPHBOX_NGHTTP2_RESET_LIMIT
    // Above ours: the default of 33 a second ends connections whose calls have short time limits.
    nghttp2_option_set_stream_reset_rate_limit(option, static_cast<std::uint64_t>(2 * limits.resets_burst) + 1,
                                               static_cast<std::uint64_t>(2 * limits.resets_per_second) + 1);
#endif
    nghttp2_session_server_new2(&session_, made, this, option);
    nghttp2_option_del(option);
  }
  nghttp2_session_callbacks_del(made);
  if (session_ == nullptr) {
    throw std::bad_alloc();
  }
  const nghttp2_settings_entry settings[] = {
      {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, limits.max_concurrent_streams},
      {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, static_cast<std::uint32_t>(kStreamWindowBytes)},
      {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, kMaxFrameBytes},
      {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, static_cast<std::uint32_t>(limits.max_header_bytes)},
  };
  nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings, std::size(settings));
  nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, kConnectionWindowBytes);
}

std::vector<Event> Http2Session::State::receive(std::string_view data) {
  if (failure_.empty()) {
    const ssize_t read =
        nghttp2_session_mem_recv(session_, reinterpret_cast<const std::uint8_t*>(data.data()), data.size());
    if (read == NGHTTP2_ERR_NOMEM) {
      throw std::bad_alloc();
    }
    if (read < 0) {
      const bool is_flood = read == NGHTTP2_ERR_FLOODED;
      terminate(is_flood ? NGHTTP2_ENHANCE_YOUR_CALM : NGHTTP2_PROTOCOL_ERROR,
                nghttp2_strerror(static_cast<int>(read)));
    }
  }
  return std::exchange(events_, {});
}

std::string Http2Session::State::output(std::size_t max_bytes) {
  output_limit_ = max_bytes;
  output_.clear();
  if (nghttp2_session_send(session_) == NGHTTP2_ERR_NOMEM) {
    throw std::bad_alloc();
  }
  return std::exchange(output_, {});
}

void Http2Session::State::terminate(std::uint32_t error_code, std::string_view reason) {
  if (failure_.empty()) {
    failure_ = reason;
    nghttp2_session_terminate_session(session_, error_code);
  }
}

// Requests.

void Http2Session::State::on_headers_begin(std::int32_t stream) {
  auto call = std::make_unique<Call>();
  call->progressed = Clock::now();
  calls_[stream] = std::move(call);
}

int Http2Session::State::on_header(Call& call, std::string_view name, std::string_view value) {
  call.header_bytes += name.size() + value.size() + kHeaderOverheadBytes;
  if (call.header_bytes > limits_.max_header_bytes) {
    call.headers_refused = true;
    call.headers.clear();
    if (call.header_bytes > kHeaderFloodFactor * limits_.max_header_bytes) {
      terminate(NGHTTP2_ENHANCE_YOUR_CALM, "headers are too large");
      return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    return 0;
  }
  if (call.is_reported || call.is_refused) {
    return 0;  // trailers of the client: gRPC has none
  }
  if (name == ":path") {
    call.path = value;
  } else if (name == ":method") {
    call.method = value;
  } else {
    call.headers.emplace_back(name, value);
  }
  return 0;
}

void Http2Session::State::on_request(std::int32_t stream, Call& call) {
  if (call.headers_refused) {
    refuse(stream, call, Status::kResourceExhausted,
           "expected headers of at most " + std::to_string(limits_.max_header_bytes) + " bytes, received larger ones");
  } else if (call.method != "POST") {
    refuse_http(stream, call, "405");
  } else if (!is_grpc(call.header("content-type"))) {
    refuse_http(stream, call, "415");
  } else if (const std::string_view text = call.header("grpc-timeout"); !text.empty()) {
    const std::optional<std::int64_t> timeout_ns = parse_timeout(text);
    if (timeout_ns) {
      call.timeout_ns = *timeout_ns;
    } else {
      refuse(stream, call, Status::kInvalidArgument,
             "grpc-timeout: expected up to 8 digits and one of the units H, M, S, m, u, n");
    }
  }
  if (call.is_refused) {
    return;
  }
  call.is_streaming =
      std::find(streaming_paths_.begin(), streaming_paths_.end(), call.path) != streaming_paths_.end();
  if (call.is_streaming || announce_calls_) {
    call.is_reported = true;
    events_.push_back({.kind = EventKind::kOpened, .stream = stream, .path = call.path, .timeout_ns = call.timeout_ns});
  }
}

void Http2Session::State::on_data(std::int32_t stream, std::string_view data) {
  Call* call = find(stream);
  std::size_t read = data.size();
  if (call != nullptr && !call->is_refused) {
    read = call->unread().empty() ? read_messages(stream, *call, data) : 0;
    if (!call->is_refused) {
      call->keep(data.substr(read));
    }
    check_buffered(stream, *call);
  }
  // A call that is not read leaves the window of the connection to the others.
  nghttp2_session_consume_connection(session_, data.size());
  nghttp2_session_consume_stream(session_, stream, read);
}

bool Http2Session::State::may_report(const Call& call) const {
  return call.pending_messages == 0 ||
         (call.pending_messages < limits_.max_pending_messages && call.pending_bytes < kMaxPendingBytes &&
          buffered_bytes_ < limits_.max_buffered_bytes / 2);
}

// Returns how many bytes were read: fewer where further messages of a streaming call have to wait.
std::size_t Http2Session::State::read_messages(std::int32_t stream, Call& call, std::string_view data) {
  const std::size_t size = data.size();
  call.progressed = Clock::now();
  while (!data.empty() && !call.is_refused) {
    if (call.is_streaming && !call.reader.is_partial() && !may_report(call)) {
      return size - data.size();
    }
    switch (call.reader.read(data, limits_.max_message_bytes)) {
      case MessageReader::State::kNeedsMore:
        break;
      case MessageReader::State::kMessage:
        on_message(stream, call);
        break;
      case MessageReader::State::kTooLarge:
        refuse(stream, call, Status::kResourceExhausted,
               "expected a message of at most " + std::to_string(limits_.max_message_bytes) +
                   " bytes, received one of " + std::to_string(call.reader.announced_bytes()));
        break;
      case MessageReader::State::kMalformed:
        refuse(stream, call, Status::kInternal, "expected 0 or 1 as the compressed flag of a message");
        break;
    }
  }
  return size;
}

void Http2Session::State::check_buffered(std::int32_t stream, Call& call) {
  count_buffered(call);
  if (buffered_bytes_ > limits_.max_buffered_bytes && !call.is_refused) {
    refuse(stream, call, Status::kResourceExhausted,
           "the calls of this connection send more than " + std::to_string(limits_.max_buffered_bytes) +
               " bytes at once");
  }
}

void Http2Session::State::on_message(std::int32_t stream, Call& call) {
  if (call.is_streaming) {
    Message message = call.reader.take();
    call.pending_messages += 1;
    call.pending_bytes += message.bytes.size();
    events_.push_back({.kind = EventKind::kMessage, .stream = stream, .message = std::move(message)});
  } else if (call.has_message) {
    refuse(stream, call, Status::kUnimplemented, "expected one message, received several");
  } else {
    call.has_message = true;
    call.message = call.reader.take();
  }
}

void Http2Session::State::on_request_end(std::int32_t stream, Call& call) {
  call.request_ended = true;
  if (call.is_refused || !call.unread().empty()) {
    return;
  }
  if (call.reader.is_partial()) {
    refuse(stream, call, Status::kInternal, "expected a complete message, received a part of one");
  } else if (call.is_streaming) {
    events_.push_back({.kind = EventKind::kHalfClosed, .stream = stream});
  } else if (!call.has_message) {
    refuse(stream, call, Status::kUnimplemented, "expected one message, received none");
  } else {
    call.is_reported = true;
    events_.push_back({.kind = EventKind::kCall,
                       .stream = stream,
                       .path = call.path,
                       .timeout_ns = call.timeout_ns,
                       .message = std::exchange(call.message, {})});
    count_buffered(call);
  }
}

void Http2Session::State::count_buffered(Call& call) {
  const std::size_t now =
      call.reader.buffered_bytes() + call.message.bytes.size() + call.pending_bytes + call.unread().size();
  buffered_bytes_ = buffered_bytes_ - call.buffered_bytes + now;
  call.buffered_bytes = now;
}

std::vector<Event> Http2Session::State::processed(std::int32_t stream, std::size_t message_bytes) {
  Call* call = find(stream);
  if (call == nullptr || call->is_refused || call->pending_messages == 0) {
    return std::exchange(events_, {});
  }
  call->pending_messages -= 1;
  call->pending_bytes -= std::min(call->pending_bytes, message_bytes);
  count_buffered(*call);
  if (!call->unread().empty() && may_report(*call)) {
    const std::size_t read = read_messages(stream, *call, call->unread());
    nghttp2_session_consume_stream(session_, stream, read);
    if (!call->is_refused) {
      call->backlog_read += read;
      if (call->request_ended) {
        on_request_end(stream, *call);
      }
    }
    check_buffered(stream, *call);
  }
  return std::exchange(events_, {});
}

void Http2Session::State::on_frame(const nghttp2_frame& frame) {
  const bool ends = (frame.hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
  switch (frame.hd.type) {
    case NGHTTP2_HEADERS:
    case NGHTTP2_DATA:
      if (frame.hd.type == NGHTTP2_DATA && frame.hd.length == 0 && !ends) {
        on_control_frame();
      } else {
        control_frames_.give_back();  // clients measure the connection by a PING beside their data
      }
      if (Call* call = find(frame.hd.stream_id); call != nullptr) {
        if (frame.hd.type == NGHTTP2_HEADERS && frame.headers.cat == NGHTTP2_HCAT_REQUEST) {
          on_request(frame.hd.stream_id, *call);
        }
        if (ends) {
          on_request_end(frame.hd.stream_id, *call);
        }
      }
      break;
    case NGHTTP2_RST_STREAM:
      if (!resets_.take()) {
        terminate(NGHTTP2_ENHANCE_YOUR_CALM, "too many calls were reset");
      }
      break;
    case NGHTTP2_WINDOW_UPDATE:
    case NGHTTP2_GOAWAY:
      break;
    default:
      on_control_frame();
      break;
  }
}

void Http2Session::State::on_control_frame() {
  if (!control_frames_.take()) {
    terminate(NGHTTP2_ENHANCE_YOUR_CALM, "too many control frames");
  }
}

void Http2Session::State::on_close(std::int32_t stream) {
  const auto found = calls_.find(stream);
  if (found == calls_.end()) {
    return;
  }
  const Call& call = *found->second;
  buffered_bytes_ -= call.buffered_bytes;
  for (const std::string& piece : call.queue) {
    queued_bytes_ -= piece.size();
  }
  if (call.is_reported && !call.answer_ended) {
    events_.push_back({.kind = EventKind::kClosed, .stream = stream});
  }
  calls_.erase(found);
}

std::vector<Event> Http2Session::State::refuse_incomplete(std::int64_t stalled_ns, int status,
                                                          std::string_view text) {
  const Clock::time_point latest = Clock::now() - std::chrono::nanoseconds(stalled_ns);
  std::vector<std::int32_t> stalled;
  for (const auto& [stream, call] : calls_) {
    const bool waits = !call->request_ended && !call->is_refused && (!call->is_streaming || call->reader.is_partial());
    if (waits && call->progressed < latest) {
      stalled.push_back(stream);
    }
  }
  for (const std::int32_t stream : stalled) {
    refuse(stream, *find(stream), static_cast<Status>(status), text);
  }
  return std::exchange(events_, {});
}

// Answers.

void Http2Session::State::refuse(std::int32_t stream, Call& call, Status status, std::string_view text) {
  finish(stream, static_cast<int>(status), text);
  events_.push_back(
      {.kind = EventKind::kRefused, .stream = stream, .path = call.path, .status = static_cast<int>(status)});
}

void Http2Session::State::ignore_rest(Call& call) {
  call.is_refused = true;
  call.reader = {};
  call.message = {};
  call.backlog = {};
  call.backlog_read = 0;
  call.pending_messages = call.pending_bytes = 0;
  count_buffered(call);
}

void Http2Session::State::refuse_http(std::int32_t stream, Call& call, std::string_view status) {
  call.is_refused = true;
  call.answer_begun = call.answer_ended = true;
  const nghttp2_nv headers[] = {header_of(":status", status)};
  nghttp2_submit_response(session_, stream, headers, std::size(headers), nullptr);
}

void Http2Session::State::begin_answer(std::int32_t stream, Call& call, std::string_view encoding) {
  call.answer_begun = true;
  nghttp2_nv headers[] = {header_of(":status", "200"), header_of("content-type", kContentType),
                          header_of("grpc-accept-encoding", "identity,deflate,gzip"),
                          header_of("grpc-encoding", encoding)};
  nghttp2_data_provider provider = {};
  provider.read_callback = [](nghttp2_session*, std::int32_t id, std::uint8_t*, std::size_t length,
                              std::uint32_t* flags, nghttp2_data_source*, void* state) {
    return static_cast<State*>(state)->read_answer(id, length, flags);
  };
  nghttp2_submit_response(session_, stream, headers, std::size(headers) - (encoding.empty() ? 1 : 0), &provider);
}

void Http2Session::State::send(std::int32_t stream, std::string_view message, bool compressed,
                               std::string_view encoding) {
  Call* call = find(stream);
  if (call == nullptr || call->answer_ended) {
    return;
  }
  if (message.size() > UINT32_MAX) {
    throw std::length_error("a message of gRPC has at most 2^32 - 1 bytes");
  }
  const std::string prefix = message_prefix(message.size(), compressed);
  std::string piece;
  piece.reserve(prefix.size() + message.size());
  piece.append(prefix).append(message);
  queued_bytes_ += piece.size();
  call->queue.push_back(std::move(piece));
  if (call->answer_begun) {
    nghttp2_session_resume_data(session_, stream);
  } else {
    begin_answer(stream, *call, encoding);
  }
}

void Http2Session::State::finish(std::int32_t stream, int status, std::string_view text) {
  Call* call = find(stream);
  if (call == nullptr || call->answer_ended) {
    return;
  }
  call->answer_ended = true;
  ignore_rest(*call);  // a refused call is not to be run when its message comes
  call->status = status;
  call->status_text = encode_status_message(text);
  if (call->answer_begun) {
    nghttp2_session_resume_data(session_, stream);
    return;
  }
  call->answer_begun = true;
  const std::string number = std::to_string(status);
  const nghttp2_nv headers[] = {header_of(":status", "200"), header_of("content-type", kContentType),
                                header_of("grpc-accept-encoding", "identity,deflate,gzip"),
                                header_of("grpc-status", number), header_of("grpc-message", call->status_text)};
  nghttp2_submit_response(session_, stream, headers, std::size(headers) - (text.empty() ? 1 : 0), nullptr);
}

void Http2Session::State::submit_trailers(std::int32_t stream, Call& call) {
  const std::string number = std::to_string(call.status);
  const nghttp2_nv trailers[] = {header_of("grpc-status", number), header_of("grpc-message", call.status_text)};
  nghttp2_submit_trailer(session_, stream, trailers, std::size(trailers) - (call.status_text.empty() ? 1 : 0));
}

ssize_t Http2Session::State::read_answer(std::int32_t stream, std::size_t length, std::uint32_t* flags) {
  Call* call = find(stream);
  if (call == nullptr) {
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  }
  std::size_t available = 0;
  for (const std::string& piece : call->queue) {
    available += piece.size();
    // Beyond `length`: at exactly that, whether a further piece follows decides about the end.
    if (available - call->sent_of_front > length) {
      break;
    }
  }
  available -= call->sent_of_front;
  if (available == 0 && !call->answer_ended) {
    return NGHTTP2_ERR_DEFERRED;
  }
  *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
  if (available <= length && call->answer_ended) {
    *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    submit_trailers(stream, *call);
  }
  return static_cast<ssize_t>(std::min(available, length));
}

int Http2Session::State::write_answer(std::int32_t stream, const std::uint8_t* frame_header, std::size_t length) {
  if (output_.size() >= output_limit_) {
    return NGHTTP2_ERR_WOULDBLOCK;
  }
  Call* call = find(stream);
  if (call == nullptr) {
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  }
  output_.append(reinterpret_cast<const char*>(frame_header), kFrameHeaderBytes);
  sent_bytes_ += length;
  control_frames_.give_back();
  while (length > 0) {
    std::string& piece = call->queue.front();
    const std::size_t count = std::min(length, piece.size() - call->sent_of_front);
    output_.append(piece, call->sent_of_front, count);
    call->sent_of_front += count;
    length -= count;
    if (call->sent_of_front == piece.size()) {
      queued_bytes_ -= piece.size();
      call->queue.pop_front();
      call->sent_of_front = 0;
    }
  }
  return 0;
}

// The public face.

Http2Session::Http2Session(const SessionLimits& limits, std::vector<std::string> streaming_paths, bool announce_calls)
    : state_(std::make_unique<State>(limits, std::move(streaming_paths), announce_calls)) {}

Http2Session::~Http2Session() = default;

std::vector<Event> Http2Session::receive(std::string_view data) { return state_->receive(data); }

std::string Http2Session::output(std::size_t max_bytes) { return state_->output(std::max<std::size_t>(max_bytes, 1)); }

std::string_view Http2Session::header(std::int32_t stream, std::string_view name) const {
  const Call* call = state_->find(stream);
  return call == nullptr ? std::string_view() : call->header(name);
}

void Http2Session::send(std::int32_t stream, std::string_view message, bool compressed, std::string_view encoding) {
  state_->send(stream, message, compressed, encoding);
}

void Http2Session::finish(std::int32_t stream, int status, std::string_view text) {
  state_->finish(stream, status, text);
}

std::vector<Event> Http2Session::processed(std::int32_t stream, std::size_t message_bytes) {
  return state_->processed(stream, message_bytes);
}

std::vector<Event> Http2Session::refuse_incomplete(std::int64_t stalled_ns, int status, std::string_view text) {
  return state_->refuse_incomplete(stalled_ns, status, text);
}

void Http2Session::shut_down(bool last) {
  if (!state_->failure_.empty()) {
    return;
  }
  if (last) {
    nghttp2_submit_goaway(state_->session_, NGHTTP2_FLAG_NONE,
                          nghttp2_session_get_last_proc_stream_id(state_->session_), NGHTTP2_NO_ERROR, nullptr, 0);
  } else {
    nghttp2_submit_shutdown_notice(state_->session_);
  }
}

void Http2Session::ping() { nghttp2_submit_ping(state_->session_, NGHTTP2_FLAG_NONE, nullptr); }

std::size_t Http2Session::buffered_bytes() const { return state_->buffered_bytes_; }

std::size_t Http2Session::queued_bytes() const { return state_->queued_bytes_; }

std::uint64_t Http2Session::sent_bytes() const { return state_->sent_bytes_; }

std::size_t Http2Session::open_calls() const { return state_->calls_.size(); }

bool Http2Session::is_finished() const {
  return nghttp2_session_want_read(state_->session_) == 0 && nghttp2_session_want_write(state_->session_) == 0;
}

const std::string& Http2Session::failure() const { return state_->failure_; }

}  // namespace graphbox::serve
