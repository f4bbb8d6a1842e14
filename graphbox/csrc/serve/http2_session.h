// Server side of one HTTP/2 connection that carries gRPC calls. No input or output of its own: bytes of the client go
// in by `receive`, bytes for the client come out of `output`. Frames, header compression and flow control are
// libnghttp2's; limits, messages and statuses are here. Not safe to use from two threads at once.
//
// A call is unary for the client (one message, announced by one event when it is complete) unless its path is among the
// streaming ones. Any number of messages may be sent as the answer. Messages of large paths, which the streaming ones
// are, carry tensors; all others name a model or a setting, and are small.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "serve/grpc_message.h"

namespace graphbox::serve {

struct SessionLimits {
  std::uint32_t max_concurrent_streams = 128;
  std::size_t max_header_bytes = 16 * 1024;  // of one call: names, values and 32 bytes for each header
  std::size_t max_message_bytes = std::size_t{64} << 20;       // of one message of a large path, as it is sent
  std::size_t max_small_message_bytes = std::size_t{16} << 10;  // of one message of any other path
  std::size_t max_buffered_bytes = std::size_t{128} << 20;     // messages of all calls: in part, or not processed
  std::size_t max_pending_messages = 64;  // of one streaming call: reported, not processed
  double control_frames_burst = 2000;  // PING, SETTINGS, PRIORITY, empty DATA and invalid frames
  double control_frames_per_second = 500;
  double resets_burst = 1000;  // calls that the client resets (CVE-2023-44487)
  double resets_per_second = 500;
};

// Statuses of gRPC that the session gives by itself.
enum class Status : int {
  kOk = 0,
  kInvalidArgument = 3,
  kResourceExhausted = 8,
  kUnimplemented = 12,
  kInternal = 13,
};

enum class EventKind : int {
  kOpened = 0,      // headers of a call: of a streaming path, or of any with `announce_calls`
  kMessage = 1,     // a message of a streaming call
  kCall = 2,        // a complete unary call: its only message
  kHalfClosed = 3,  // a streaming call gets no further messages
  kClosed = 4,      // a call that was reported has ended before its answer: the client left it
  kRefused = 5,     // a call, reported or not, was ended by the session itself
};

struct Event {
  EventKind kind;
  std::int32_t stream;
  std::string path = {};          // kOpened, kCall, kRefused
  std::int64_t timeout_ns = -1;   // kOpened, kCall; -1: no limit
  Message message = {};           // kMessage, kCall
  int status = 0;                 // kRefused
};

class Http2Session {
 public:
  // `large_paths`: of unary calls with large messages. `announce_calls`: report the headers of unary calls before their
  // message, so that a call can be refused early.
  Http2Session(const SessionLimits& limits, std::vector<std::string> streaming_paths,
               std::vector<std::string> large_paths, bool announce_calls);
  ~Http2Session();
  Http2Session(const Http2Session&) = delete;
  Http2Session& operator=(const Http2Session&) = delete;

  // Process bytes of the client and return what happened, in order. Broken protocol ends the session by GOAWAY, which
  // `output` returns; bytes after that are ignored.
  std::vector<Event> receive(std::string_view data);

  // Bytes to send, about `max_bytes`; empty: nothing for now.
  std::string output(std::size_t max_bytes);

  // A header of an open call; empty when it is missing. `:authority` is one.
  std::string_view header(std::int32_t stream, std::string_view name) const;

  // Each of these ignores calls that have ended.
  // Send a message of the answer. `encoding`, for the first message of the answer: value of `grpc-encoding`.
  void send(std::int32_t stream, std::string_view message, bool compressed = false, std::string_view encoding = {});
  // End the answer with a status. What the client still sends for this call is ignored.
  void finish(std::int32_t stream, int status, std::string_view text = {});

  // Note that a reported message of a streaming call needs no memory any more; returns what this call has sent beyond
  // the limit of pending messages.
  std::vector<Event> processed(std::int32_t stream, std::size_t message_bytes);

  // End calls whose message is incomplete this long after it began; kRefused is returned for each.
  std::vector<Event> refuse_incomplete(std::int64_t stalled_ns, int status, std::string_view text);

  // Ask the client to open no further calls here. `last`: reject those it still opens.
  void shut_down(bool last);

  // Ask the client for a sign of life.
  void ping();

  // Messages that are being received, and those of streaming calls that are not processed, in bytes.
  std::size_t buffered_bytes() const;
  // Answers that were not sent yet, in bytes.
  std::size_t queued_bytes() const;
  // Bytes of answers that were sent so far.
  std::uint64_t sent_bytes() const;
  // Calls that are open.
  std::size_t open_calls() const;
  // Neither input is of use nor is there output.
  bool is_finished() const;
  // Reason for which the session was terminated; empty: it was not.
  const std::string& failure() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace graphbox::serve
