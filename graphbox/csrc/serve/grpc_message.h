// The parts of "gRPC over HTTP/2" (https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md) that are text or
// bytes alone: length-prefixed messages, time limits, status messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace graphbox::serve {

inline constexpr std::size_t kMessagePrefixBytes = 5;  // compressed flag, length (big-endian)

struct Message {
  std::string bytes;
  bool compressed = false;
};

// Cuts a stream of bytes into messages.
class MessageReader {
 public:
  enum class State { kNeedsMore, kMessage, kTooLarge, kMalformed };

  // Consume bytes from the front of `data` up to the end of a message. After kMessage, `take` returns it, and the call
  // is repeated for the rest of `data`. kTooLarge: `announced_bytes` exceeds the limit. kMalformed: the compressed flag
  // is neither 0 nor 1.
  State read(std::string_view& data, std::size_t max_message_bytes);

  Message take();

  // Whether a message has begun and is not complete.
  bool is_partial() const { return prefix_size_ != 0; }
  std::size_t announced_bytes() const { return announced_bytes_; }
  // Bytes of the message that is being read.
  std::size_t buffered_bytes() const { return message_.bytes.size(); }

 private:
  unsigned char prefix_[kMessagePrefixBytes] = {};
  std::size_t prefix_size_ = 0;
  std::size_t announced_bytes_ = 0;
  Message message_;
};

// Prefix of a message of `size` bytes. `size` fits 32 bits.
std::string message_prefix(std::size_t size, bool compressed);

// Nanoseconds of a `grpc-timeout` header; none: it is malformed. Limits beyond 292 years are that long.
std::optional<std::int64_t> parse_timeout(std::string_view text);

// Percent-encode a status message, cut to `kMaxStatusBytes` before.
inline constexpr std::size_t kMaxStatusBytes = 2048;
std::string encode_status_message(std::string_view text);

}  // namespace graphbox::serve
