#include "table/policy.h"

#include <cmath>
#include <string>

#include "errors/error.h"

namespace graphbox {
namespace {

constexpr std::uint32_t kMostSketchCount = UINT8_MAX;
constexpr std::uint64_t kLeastSketchBytes = 1024;
constexpr std::uint64_t kMostSketchBytes = std::uint64_t{4} << 32;  // 2^32 counters in each of four rows

[[noreturn]] void refuse(const std::string& message, const char* where) {
  throw Error(ErrorKind::kUsage, message, where);
}

void check_admission(const PolicyConfig& config) {
  const bool is_sketch = config.admission == Admission::kSketch;
  if (config.admission == Admission::kProbability &&
      !(config.admission_probability > 0 && config.admission_probability <= 1)) {
    refuse("the probability must be above 0 and at most 1, received " + std::to_string(config.admission_probability),
           "admission");
  }
  if (config.admission_count < 1 || (is_sketch && config.admission_count > kMostSketchCount)) {
    refuse("the count must be 1 or more, with a sketch at most 255, received " + std::to_string(config.admission_count),
           "admission");
  }
  if (is_sketch && (config.sketch_bytes < kLeastSketchBytes || config.sketch_bytes > kMostSketchBytes)) {
    refuse("sketch_bytes must be 1,024 to 2^34, received " + std::to_string(config.sketch_bytes), "admission");
  }
}

void check_score(const PolicyConfig& config) {
  const auto is_weight = [](float value) { return std::isfinite(value) && value >= 0; };
  if (!is_weight(config.nonclick_weight) || !is_weight(config.click_weight) || !is_weight(config.drop_below)) {
    refuse("weights and threshold of the score must be finite numbers, 0 or more", "score");
  }
  if (!(config.decay > 0 && config.decay <= 1)) {
    refuse("decay must be above 0 and at most 1, received " + std::to_string(config.decay), "score");
  }
}

}  // namespace

void check_policies(const PolicyConfig& config) {
  check_admission(config);
  check_score(config);
  if (config.eviction == Eviction::kScore && !config.has_score) {
    throw Error(ErrorKind::kUsage, "rows are evicted by their score, and there is none", "eviction",
                "give score=ShowClickScore()");
  }
}

}  // namespace graphbox
