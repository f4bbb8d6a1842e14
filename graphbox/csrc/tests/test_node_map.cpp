#include "sample/node_map.h"

#include <unordered_map>

#include "random/philox.h"
#include "tests/check.h"

namespace graphbox {
namespace {

template <typename Map>
void check_against_the_standard_map(Map& map, std::int64_t num_nodes) {
  const PhiloxKey key = derive_key(Stream::kWalk, 1, 0, 0);
  for (std::uint64_t batch = 0; batch < 3; ++batch) {
    map.start();
    std::unordered_map<std::int64_t, std::uint32_t> reference;
    for (std::uint64_t i = 0; i < 20000; ++i) {
      const auto node = static_cast<std::int64_t>(
          DrawSequence(key, 0, 0, batch * 100000 + i).bounded_wide(0, static_cast<std::uint64_t>(num_nodes)));
      const auto next = static_cast<std::uint32_t>(reference.size());
      const auto expected = reference.try_emplace(node, next).first->second;
      map.prefetch(node);
      CHECK_EQUAL(map.find_or_insert(node, next), expected);
    }
  }
}

TEST(node_map, direct) {
  DirectNodeMap map(5000);
  check_against_the_standard_map(map, 5000);
}

TEST(node_map, hash_grows) {
  HashNodeMap map;
  check_against_the_standard_map(map, std::int64_t{1} << 62);
}

TEST(node_map, pool_gives_started_maps_back) {
  NodeMapPool<DirectNodeMap>::shared().release();
  auto map = NodeMapPool<DirectNodeMap>::shared().take(100);
  const DirectNodeMap* const address = map.get();
  CHECK_EQUAL(map->find_or_insert(7, 0), 0U);
  NodeMapPool<DirectNodeMap>::shared().give(std::move(map));
  auto other = NodeMapPool<DirectNodeMap>::shared().take(101);
  CHECK(other.get() != address);
  map = NodeMapPool<DirectNodeMap>::shared().take(100);
  CHECK(map.get() == address);
  CHECK_EQUAL(map->find_or_insert(7, 42), 42U);  // the node of the batch before is forgotten
}

}  // namespace
}  // namespace graphbox
