// Settings of a table's policies: admission of keys, and rows that leave.
#pragma once

#include <cstdint>

namespace graphbox {

enum class Admission : std::uint32_t {
  kAll = 0,
  kCount = 1,        // keys that were pulled often enough, every key without a row counted
  kSketch = 2,       // the same, counted in a sketch of fixed size
  kProbability = 3,  // a share of the keys, drawn anew in each pass
};

// Choice of the rows to evict from a table whose memory is used up.
enum class Eviction : std::uint32_t {
  kNone = 0,   // none: what does not fit is refused
  kClock = 1,  // those that were not looked up lately
  kScore = 2,  // those of the lowest score
};

inline constexpr std::uint32_t kNeverExpires = UINT32_MAX;

struct PolicyConfig {
  Admission admission = Admission::kAll;
  std::uint32_t admission_count = 1;  // a key is admitted when it was pulled so often
  double admission_probability = 1;
  std::uint64_t sketch_bytes = 0;
  std::uint64_t halve_after = 0;  // pulls of keys without a row after which their counts are halved; 0: never

  std::uint32_t expiry_passes = kNeverExpires;  // a row expires when it was not pushed for more than so many
  std::uint32_t expiry_seconds = kNeverExpires;

  bool has_score = false;  // (shows - clicks) * nonclick_weight + clicks * click_weight
  float nonclick_weight = 0;
  float click_weight = 0;
  float decay = 1;           // of shows and clicks, for each pass
  float drop_below = 0;      // shrinking drops rows of a lower score

  Eviction eviction = Eviction::kNone;

  bool needs_counters() const {
    return has_score || expiry_passes != kNeverExpires || expiry_seconds != kNeverExpires ||
           eviction == Eviction::kScore;
  }
};

// Throws an error of kind kUsage unless all is as it may be.
void check_policies(const PolicyConfig& config);

// Counts of policy events since the table was made.
struct PolicyEvents {
  std::uint64_t admitted_keys = 0;
  std::uint64_t refused_pulls = 0;    // positions of pulls whose key got no row
  std::uint64_t dropped_gradients = 0;  // positions of pushes whose key had none
  std::uint64_t evicted_rows = 0;
  std::uint64_t dropped_rows = 0;     // by shrinking
};

struct ShrinkCounts {
  std::uint64_t examined = 0;
  std::uint64_t unseen_passes = 0;
  std::uint64_t unseen_seconds = 0;
  std::uint64_t low_score = 0;
  std::uint64_t freed_bytes = 0;  // of memory
};

}  // namespace graphbox
