#include "graph/id_hash.h"

#include <cstdint>
#include <limits>
#include <string_view>

#include "tests/check.h"

namespace graphbox {
namespace {

// Values that implementations of XXH64 publish for seed 0.
TEST(id_hash, known_strings) {
  const auto hash = [](std::string_view text) { return hash_bytes(text.data(), text.size()); };
  CHECK_EQUAL(hash(""), 0xEF46DB3751D8E999ULL);
  CHECK_EQUAL(hash("a"), 0xD24EC4F1A98C6E5BULL);
  CHECK_EQUAL(hash("abc"), 0x44BC2CF5AD770999ULL);
  CHECK_EQUAL(hash("Nobody inspects the spammish repetition"), 0xFBCEA83C8A378BF1ULL);
}

// The first outputs of SplitMix64 seeded with 0 are the hashes of the multiples of its increment.
TEST(id_hash, known_integers) {
  constexpr std::uint64_t kIncrement = 0x9E3779B97F4A7C15ULL;
  CHECK_EQUAL(hash_integer(0), 0ULL);
  CHECK_EQUAL(hash_integer(static_cast<std::int64_t>(kIncrement)), 0xE220A8397B1DCDAFULL);
  CHECK_EQUAL(hash_integer(static_cast<std::int64_t>(2 * kIncrement)), 0x6E789E6AA1B965F4ULL);
}

}  // namespace
}  // namespace graphbox
