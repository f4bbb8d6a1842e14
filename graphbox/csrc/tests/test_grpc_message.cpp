#include "serve/grpc_message.h"

#include <limits>
#include <string>
#include <vector>

#include "tests/check.h"

namespace graphbox::serve {
namespace {

using State = MessageReader::State;

TEST(grpc_message, messages_are_cut_at_any_place) {
  std::string stream;
  const std::vector<std::string> messages = {"first", "", std::string(70'000, 'x'), "last"};
  for (const std::string& message : messages) {
    stream += message_prefix(message.size(), message == "last") + message;
  }
  for (const std::size_t step : {std::size_t{1}, std::size_t{3}, std::size_t{4096}, stream.size()}) {
    MessageReader reader;
    std::vector<Message> read;
    for (std::size_t offset = 0; offset < stream.size(); offset += step) {
      std::string_view data = std::string_view(stream).substr(offset, step);
      while (!data.empty()) {
        if (reader.read(data, 1 << 20) == State::kMessage) {
          read.push_back(reader.take());
        }
      }
    }
    CHECK(!reader.is_partial());
    CHECK_EQUAL(read.size(), messages.size());
    for (std::size_t i = 0; i < messages.size(); ++i) {
      CHECK(read[i].bytes == messages[i]);
      CHECK_EQUAL(read[i].compressed, messages[i] == "last");
    }
  }
}

TEST(grpc_message, large_and_malformed_messages_are_named) {
  MessageReader large;
  const std::string prefix = message_prefix(101, false);
  std::string_view data = prefix;
  CHECK(large.read(data, 100) == State::kTooLarge);
  CHECK_EQUAL(large.announced_bytes(), std::size_t{101});

  MessageReader malformed;
  const std::string flag(kMessagePrefixBytes, '\2');
  data = flag;
  CHECK(malformed.read(data, 100) == State::kMalformed);
}

TEST(grpc_message, timeouts) {
  CHECK_EQUAL(*parse_timeout("1H"), 3'600'000'000'000);
  CHECK_EQUAL(*parse_timeout("2M"), 120'000'000'000);
  CHECK_EQUAL(*parse_timeout("3S"), 3'000'000'000);
  CHECK_EQUAL(*parse_timeout("4m"), 4'000'000);
  CHECK_EQUAL(*parse_timeout("5u"), 5'000);
  CHECK_EQUAL(*parse_timeout("0n"), 0);
  CHECK_EQUAL(*parse_timeout("99999999H"), std::numeric_limits<std::int64_t>::max());
  for (const char* text : {"", "1", "S", "1s", "-1S", "123456789S", "1 S", "0x1S"}) {
    CHECK(!parse_timeout(text));
  }
}

TEST(grpc_message, status_messages_are_percent_encoded_and_cut) {
  CHECK(encode_status_message("50% of \n") == "50%25 of %0A");
  CHECK(encode_status_message("caf\xC3\xA9") == "caf%C3%A9");
  const std::string long_text = std::string(kMaxStatusBytes - 1, 'a') + "\xC3\xA9";
  CHECK(encode_status_message(long_text) == std::string(kMaxStatusBytes - 1, 'a'));
}

}  // namespace
}  // namespace graphbox::serve
