#include "serve/grpc_message.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

namespace graphbox::serve {
namespace {

constexpr std::size_t kReservedBytes = std::size_t{1} << 16;
constexpr std::size_t kMostTimeoutDigits = 8;

std::int64_t unit_ns(char unit) {
  switch (unit) {
    case 'H':
      return 3'600'000'000'000;
    case 'M':
      return 60'000'000'000;
    case 'S':
      return 1'000'000'000;
    case 'm':
      return 1'000'000;
    case 'u':
      return 1'000;
    case 'n':
      return 1;
    default:
      return 0;
  }
}

}  // namespace

MessageReader::State MessageReader::read(std::string_view& data, std::size_t max_message_bytes) {
  if (prefix_size_ < kMessagePrefixBytes) {
    const std::size_t count = std::min(kMessagePrefixBytes - prefix_size_, data.size());
    std::memcpy(prefix_ + prefix_size_, data.data(), count);
    prefix_size_ += count;
    data.remove_prefix(count);
    if (prefix_size_ < kMessagePrefixBytes) {
      return State::kNeedsMore;
    }
    if (prefix_[0] > 1) {
      return State::kMalformed;
    }
    announced_bytes_ = (std::size_t{prefix_[1]} << 24) | (std::size_t{prefix_[2]} << 16) |
                       (std::size_t{prefix_[3]} << 8) | std::size_t{prefix_[4]};
    if (announced_bytes_ > max_message_bytes) {
      return State::kTooLarge;
    }
    message_.compressed = prefix_[0] == 1;
    // The announced size is not reserved: a client that announces much and sends nothing would cost it.
    message_.bytes.reserve(std::min(announced_bytes_, std::max(kReservedBytes, data.size())));
  }
  const std::size_t count = std::min(announced_bytes_ - message_.bytes.size(), data.size());
  message_.bytes.append(data.data(), count);
  data.remove_prefix(count);
  return message_.bytes.size() == announced_bytes_ ? State::kMessage : State::kNeedsMore;
}

Message MessageReader::take() {
  prefix_size_ = 0;
  return std::exchange(message_, {});
}

std::string message_prefix(std::size_t size, bool compressed) {
  const auto byte = [size](int shift) { return static_cast<char>((size >> shift) & 0xFF); };
  return {static_cast<char>(compressed ? 1 : 0), byte(24), byte(16), byte(8), byte(0)};
}

std::optional<std::int64_t> parse_timeout(std::string_view text) {
  if (text.size() < 2 || text.size() > kMostTimeoutDigits + 1) {
    return std::nullopt;
  }
  const std::int64_t unit = unit_ns(text.back());
  if (unit == 0) {
    return std::nullopt;
  }
  std::int64_t number = 0;
  for (const char digit : text.substr(0, text.size() - 1)) {
    if (digit < '0' || digit > '9') {
      return std::nullopt;
    }
    number = number * 10 + (digit - '0');
  }
  constexpr std::int64_t kLongest = std::numeric_limits<std::int64_t>::max();
  return number > kLongest / unit ? kLongest : number * unit;
}

std::string encode_status_message(std::string_view text) {
  constexpr char kHex[] = "0123456789ABCDEF";
  if (text.size() > kMaxStatusBytes) {
    std::size_t size = kMaxStatusBytes;
    while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) {
      --size;  // no half of a UTF-8 sequence
    }
    text = text.substr(0, size);
  }
  std::string encoded;
  encoded.reserve(text.size());
  for (const char each : text) {
    const auto byte = static_cast<unsigned char>(each);
    if (byte >= 0x20 && byte <= 0x7E && byte != '%') {
      encoded.push_back(each);
    } else {
      encoded.push_back('%');
      encoded.push_back(kHex[byte >> 4]);
      encoded.push_back(kHex[byte & 15]);
    }
  }
  return encoded;
}

}  // namespace graphbox::serve
