#include "serve/http2_session.h"

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <new>
#include <stdexcept>
#include <utility>

#include "serve/http2_state.h"

namespace graphbox::serve {
namespace {

// Of the client's data; more is sent when half of it was processed.
constexpr std::int32_t kStreamWindowBytes = 1 << 20;
constexpr std::int32_t kConnectionWindowBytes = 16 << 20;
constexpr std::uint32_t kMaxFrameBytes = 1 << 18;

std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace

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

Http2Session::State::State(const SessionLimits& limits, std::vector<std::string> streaming_paths,
                           std::vector<std::string> large_paths, bool announce_calls)
    : limits_(limits),
      streaming_paths_(std::move(streaming_paths)),
      large_paths_(std::move(large_paths)),
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

// The public face.

Http2Session::Http2Session(const SessionLimits& limits, std::vector<std::string> streaming_paths,
                           std::vector<std::string> large_paths, bool announce_calls)
    : state_(std::make_unique<State>(limits, std::move(streaming_paths), std::move(large_paths), announce_calls)) {}

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
