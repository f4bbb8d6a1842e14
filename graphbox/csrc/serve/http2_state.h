// The state of a session and of its calls, for the files that implement it: http2_session.cpp (connection),
// http2_requests.cpp (what the client sends) and http2_answers.cpp (what it gets).
#pragma once

#include <nghttp2/nghttp2.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "serve/grpc_message.h"
#include "serve/http2_session.h"
#include "serve/token_bucket.h"

namespace graphbox::serve {

using Clock = std::chrono::steady_clock;

inline constexpr std::string_view kContentType = "application/grpc";

struct Call {
  std::string path;
  std::string method;
  std::vector<std::pair<std::string, std::string>> headers;
  std::size_t header_bytes = 0;
  std::int64_t timeout_ns = -1;
  bool is_streaming = false;
  std::size_t max_message_bytes = 0;
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
  // Of the message that is received, or waited for: bytes that trickle in do not prolong its time.
  Clock::time_point message_began;

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

class Http2Session::State {
 public:
  State(const SessionLimits& limits, std::vector<std::string> streaming_paths, std::vector<std::string> large_paths,
        bool announce_calls);
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
  std::vector<std::string> large_paths_;
  bool announce_calls_;
  TokenBucket control_frames_;
  TokenBucket resets_;
  std::vector<Event> events_;
};

}  // namespace graphbox::serve
