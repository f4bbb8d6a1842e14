#include "parallel/cpu_quota.h"

#include <algorithm>
#include <climits>
#include <fstream>
#include <sstream>

namespace graphbox {
namespace {

// Missing values and non-numbers ("max", and -1 in version 1) are no quota.
int quota_of(double quota_us, double period_us) {
  return quota_us > 0 && period_us > 0 ? static_cast<int>(std::clamp(quota_us / period_us, 1.0, double{INT_MAX}))
                                       : INT_MAX;
}

int quota_of_group(const std::string& folder) {
  double quota_us = 0;
  double period_us = 0;
  std::ifstream(folder + "/cpu.max") >> quota_us >> period_us;
  const int quota = quota_of(quota_us, period_us);
  std::ifstream(folder + "/cpu.cfs_quota_us") >> quota_us;
  std::ifstream(folder + "/cpu.cfs_period_us") >> period_us;
  return std::min(quota, quota_of(quota_us, period_us));
}

}  // namespace

int cpu_quota(const std::string& groups, const std::string& root) {
  int quota = INT_MAX;
  std::ifstream lines(groups);
  for (std::string line; std::getline(lines, line);) {  // number:controllers:path, no controllers in version 2
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::istringstream names(controllers);
    bool has_cpu = controllers.empty();
    for (std::string name; std::getline(names, name, ',');) {
      has_cpu = has_cpu || name == "cpu";
    }
    if (!has_cpu) {
      continue;
    }
    const std::string mounted = controllers.empty() ? root : root + "/cpu";
    // The group may have another path here, as in a container: then that of the root counts.
    for (std::string path = line.substr(second + 1);; path.resize(path.find_last_of('/'))) {
      quota = std::min(quota, quota_of_group(mounted + path));
      if (path.find('/') == std::string::npos) {
        break;
      }
    }
  }
  return quota;
}

}  // namespace graphbox
