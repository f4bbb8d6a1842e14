#include "parallel/cpu_quota.h"

#include <climits>
#include <filesystem>
#include <fstream>

#include "tests/check.h"

namespace graphbox {
namespace {

void write(const std::string& path, const std::string& content) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << content;
}

TEST(cpu_quota, the_least_of_a_group_and_those_around_it) {
  const std::string root = testing::temporary_path("groups");
  const std::string groups = root + "/mine";
  write(groups, "0::/service/worker\n");
  CHECK_EQUAL(cpu_quota(groups, root), INT_MAX);
  write(root + "/service/worker/cpu.max", "max 100000\n");
  CHECK_EQUAL(cpu_quota(groups, root), INT_MAX);
  write(root + "/service/cpu.max", "250000 100000\n");
  CHECK_EQUAL(cpu_quota(groups, root), 2);
  write(root + "/service/worker/cpu.max", "50000 100000\n");
  CHECK_EQUAL(cpu_quota(groups, root), 1);
  write(groups, "0::/\n");
  CHECK_EQUAL(cpu_quota(groups, root), INT_MAX);
  write(root + "/cpu.max", "400000 100000\n");
  CHECK_EQUAL(cpu_quota(groups, root), 4);
}

TEST(cpu_quota, version_1) {
  const std::string root = testing::temporary_path("old-groups");
  const std::string groups = root + "/mine";
  write(groups, "5:memory:/m\n4:cpu,cpuacct:/docker/x\n");
  write(root + "/cpu/cpu.cfs_quota_us", "-1\n");
  write(root + "/cpu/cpu.cfs_period_us", "100000\n");
  CHECK_EQUAL(cpu_quota(groups, root), INT_MAX);
  write(root + "/cpu/cpu.cfs_quota_us", "300000\n");
  CHECK_EQUAL(cpu_quota(groups, root), 3);
}

TEST(cpu_quota, what_cannot_be_read_is_no_quota) {
  const std::string root = testing::temporary_path("damaged-groups");
  CHECK_EQUAL(cpu_quota(root + "/none", root), INT_MAX);
  write(root + "/mine", "\n0\n0:\n0::\n0::/a\n");
  write(root + "/a/cpu.max", "many\n");
  CHECK_EQUAL(cpu_quota(root + "/mine", root), INT_MAX);
}

}  // namespace
}  // namespace graphbox
