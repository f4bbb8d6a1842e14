#include "table/pulled_rows.h"

#include <algorithm>

namespace graphbox {

PulledRows PulledRows::joined(const std::vector<const PulledRows*>& parts) {
  std::int64_t count = 0;
  for (const PulledRows* part : parts) {
    count += part->rows.size();
  }
  PulledRows all;
  all.keys.resize(count);
  all.rows.resize(count);
  std::int64_t begin = 0;
  for (const PulledRows* part : parts) {
    std::copy(part->keys.begin(), part->keys.end(), all.keys.data() + begin);
    std::copy(part->rows.begin(), part->rows.end(), all.rows.data() + begin);
    begin += part->rows.size();
    all.version = part == parts.front() || part->version == all.version ? part->version : kOutdated;
  }
  return all;
}

}  // namespace graphbox
