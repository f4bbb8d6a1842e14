// Immutable snapshot of the contents of a table's segments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "table/cold_rows.h"

namespace graphbox {

struct SegmentAtMoment {
  std::shared_ptr<const ColdSegment> segment;
  std::uint32_t rows;
  std::uint32_t live_rows;
  bool is_damaged;
  std::vector<std::uint64_t> live;  // a bit for each row that counted
};

// All rows of a table with rows on SSD.
struct TierSnapshot {
  ColdRows::HeldFiles held;
  bool has_erased = false;  // segments may hold rows of keys that are not in the table any more
  std::vector<SegmentAtMoment> segments;  // in the order of their sequence numbers
};

// The keys that a table with rows on SSD had at a moment, a part at a time. Besides a part it takes a bit for each row
// in segments, and 8 bytes for each row that is in memory alone.
class KeyScan {
 public:
  // At most so many; none at the end.
  std::vector<std::int64_t> next(std::size_t most);

 private:
  friend class Table;

  struct Segment {
    std::shared_ptr<const SegmentReader> file;  // open, so that it can be read even if it is removed
    std::vector<std::uint64_t> live;
    std::uint64_t sequence = 0;
  };

  std::vector<std::int64_t> keys_;  // those from begin_ on are next
  std::size_t begin_ = 0;
  std::vector<Segment> segments_;
  std::size_t segment_ = 0;  // the next one
};

}  // namespace graphbox
