#include "table/slab.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <new>

#include "tests/check.h"

namespace graphbox {
namespace {

constexpr std::size_t kLittleRoom = std::size_t{16} << 20;  // less than a chunk

std::size_t address_space_bytes() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

TEST(slab, rows_stay_where_they_were_when_there_is_no_memory_for_more) {
  const RowLayout layout(64, ValueType::kFloat32, Optimizer::kSgd, false);
  Slab slab(layout);
  slab.resize(1);
  slab.key(0) = 7;
  const std::uint64_t chunk_rows = std::uint64_t{slab.view().mask} + 1;
  const std::byte* const before = slab.data(0);
  rlimit limit;
  CHECK_EQUAL(::getrlimit(RLIMIT_AS, &limit), 0);
  rlimit less = limit;
  less.rlim_cur = address_space_bytes() + kLittleRoom;
  CHECK_EQUAL(::setrlimit(RLIMIT_AS, &less), 0);
  bool has_failed = false;
  try {
    slab.resize(chunk_rows + 1);
  } catch (const std::bad_alloc&) {
    has_failed = true;
  }
  CHECK_EQUAL(::setrlimit(RLIMIT_AS, &limit), 0);
  CHECK(has_failed);
  CHECK(slab.data(0) == before);
  CHECK_EQUAL(slab.key(0), std::int64_t{7});
  slab.resize(chunk_rows + 1);
  CHECK(slab.data(0) == before);
  slab.key(static_cast<std::uint32_t>(chunk_rows)) = 8;
  CHECK_EQUAL(slab.key(0), std::int64_t{7});
}

}  // namespace
}  // namespace graphbox
