// In which order things are read: by their place on the disk.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "memory/buffer.h"
#include "store/cache.h"

namespace graphbox {

// Positions of the fragments, by unit; those of one unit in their order.
PooledArray<std::uint32_t> order_by_unit(std::span<const Fragment> fragments);

// The requests of a pass in parts of about `part_requests`, each of a range of indices that ascends from part to part:
// part p is positions[bounds[p]] to positions[bounds[p + 1]]. Within a part positions ascend within stretches only.
struct PassOrder {
  PooledArray<std::uint32_t> positions;
  std::vector<std::int64_t> bounds;

  std::int64_t parts() const { return static_cast<std::int64_t>(bounds.size()) - 1; }
};
// Indices lie in [0, limit); there are fewer than 2^32. The order does not depend on the number of threads.
PassOrder order_pass(std::span<const std::int64_t> indices, std::int64_t limit, std::int64_t part_requests,
                     int threads = 1);

}  // namespace graphbox
