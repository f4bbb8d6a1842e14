#include "io/crc32c.h"

#include <cstring>
#include <vector>

#include "tests/check.h"

namespace graphbox {
namespace {

// RFC 3720, appendix B.4.
TEST(crc32c, known_answers) {
  const unsigned char zeros[32] = {};
  CHECK_EQUAL(crc32c(0, zeros, 32), 0x8A9136AAU);
  CHECK_EQUAL(crc32c(0, "123456789", 9), 0xE3069283U);
  CHECK_EQUAL(crc32c_portable(0, "123456789", 9), 0xE3069283U);
  CHECK_EQUAL(crc32c(0, "", 0), 0U);
}

TEST(crc32c, parts_and_both_ways_agree) {
  std::vector<unsigned char> data(1021);
  for (std::size_t i = 0; i < data.size(); ++i) {
    data[i] = static_cast<unsigned char>(i * 31 + i / 7);
  }
  const std::uint32_t whole = crc32c(0, data.data(), data.size());
  CHECK_EQUAL(whole, crc32c_portable(0, data.data(), data.size()));
  for (const std::size_t cut : {std::size_t{1}, std::size_t{8}, std::size_t{500}, std::size_t{1020}}) {
    CHECK_EQUAL(whole, crc32c(crc32c(0, data.data(), cut), data.data() + cut, data.size() - cut));
    CHECK_EQUAL(whole, crc32c_joined(crc32c(0, data.data(), cut), crc32c(0, data.data() + cut, data.size() - cut),
                                     data.size() - cut));
  }
}

}  // namespace
}  // namespace graphbox
