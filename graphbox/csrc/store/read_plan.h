// Plan of the stretches of the disk that are read for missing fragments.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "io/block_reader.h"
#include "store/block_space.h"
#include "store/cache.h"

namespace graphbox {

// Cost of reading on a disk with many reads in flight.
struct DiskCost {
  double seconds_per_read;
  double seconds_per_byte;

  // A gap of fewer bytes costs less to read along than to begin another read.
  std::uint64_t bridged_bytes() const;
};

// Of solid-state disks.
DiskCost usual_disk_cost();
// Measured once for each disk, on the first file that is large enough; before that, what is usual.
DiskCost disk_cost(const BlockFile& file, BlockReader& reader);

// Gives the stretches of units in ascending order. Blocks that lie next to each other, or closer than what a read of
// its own would cost, are one stretch.
class ReadPlan {
 public:
  // `order`: positions of the fragments by unit.
  ReadPlan(const BlockSpace& space, const UnitLayout& layout, std::span<const Fragment> fragments,
           std::span<const std::uint32_t> order, std::uint64_t bridged_bytes);

  struct Part {
    std::uint64_t begin;  // address
    std::uint64_t end;
    std::span<const std::uint32_t> order;  // positions of the fragments within
  };

  bool next(Stretch& stretch);
  const Part& part(std::uint64_t tag) const { return parts_[tag]; }

 private:
  const BlockSpace& space_;
  UnitLayout layout_;
  std::span<const Fragment> fragments_;
  std::span<const std::uint32_t> order_;
  std::uint64_t bridged_bytes_;
  std::size_t next_ = 0;
  std::vector<Part> parts_;
};

}  // namespace graphbox
