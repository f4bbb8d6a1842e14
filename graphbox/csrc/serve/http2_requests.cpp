// Requests of an HTTP/2 session: headers, messages, control frames and their limits.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "serve/http2_state.h"

namespace graphbox::serve {
namespace {

// Of the messages of one streaming call that are reported and not processed; one is reported in any case.
constexpr std::size_t kMaxPendingBytes = 8 << 20;
constexpr std::size_t kHeaderOverheadBytes = 32;  // RFC 9113, 6.5.2
// Headers beyond this many times their limit end the connection instead of the call.
constexpr std::size_t kHeaderFloodFactor = 8;

bool is_grpc(std::string_view content_type) {
  if (content_type.substr(0, kContentType.size()) != kContentType) {
    return false;
  }
  const std::string_view rest = content_type.substr(kContentType.size());
  return rest.empty() || rest.front() == ';' || rest == "+proto" || rest.substr(0, 7) == "+proto;";
}

bool contains(const std::vector<std::string>& paths, const std::string& path) {
  return std::find(paths.begin(), paths.end(), path) != paths.end();
}

}  // namespace

void Http2Session::State::on_headers_begin(std::int32_t stream) {
  auto call = std::make_unique<Call>();
  call->message_began = Clock::now();
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
  call.is_streaming = contains(streaming_paths_, call.path);
  call.max_message_bytes = call.is_streaming || contains(large_paths_, call.path) ? limits_.max_message_bytes
                                                                                  : limits_.max_small_message_bytes;
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
  if (!call.reader.is_partial()) {
    call.message_began = Clock::now();
  }
  while (!data.empty() && !call.is_refused) {
    if (call.is_streaming && !call.reader.is_partial() && !may_report(call)) {
      return size - data.size();
    }
    switch (call.reader.read(data, call.max_message_bytes)) {
      case MessageReader::State::kNeedsMore:
        break;
      case MessageReader::State::kMessage:
        on_message(stream, call);
        call.message_began = Clock::now();
        break;
      case MessageReader::State::kTooLarge:
        refuse(stream, call, Status::kResourceExhausted,
               "expected a message of at most " + std::to_string(call.max_message_bytes) +
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
    if (waits && call->message_began < latest) {
      stalled.push_back(stream);
    }
  }
  for (const std::int32_t stream : stalled) {
    refuse(stream, *find(stream), static_cast<Status>(status), text);
  }
  return std::exchange(events_, {});
}

}  // namespace graphbox::serve
