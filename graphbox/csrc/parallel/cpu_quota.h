// Number of CPUs that a control group (cgroup) lets this process use.
#pragma once

#include <string>

namespace graphbox {

// Whole CPUs that the quotas of the groups listed in `groups` (as /proc/self/cgroup lists them) and of those around
// them amount to, 1 at least, or INT_MAX without a quota. `root` is where groups are mounted. Versions 1 and 2.
int cpu_quota(const std::string& groups = "/proc/self/cgroup", const std::string& root = "/sys/fs/cgroup");

}  // namespace graphbox
