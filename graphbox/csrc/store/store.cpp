#include "store/store.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "errors/error.h"
#include "io/block_reader.h"
#include "parallel/parallel_for.h"
#include "store/gather.h"
#include "store/order.h"
#include "store/read_plan.h"

namespace graphbox {
namespace {

constexpr std::uint32_t kSmallestBlockBytes = 512;
constexpr std::uint64_t kSmallestRowUnitBytes = 128;  // below, the index would take more than the rows
constexpr std::uint64_t kLargestRowUnitBytes = std::uint64_t{64} << 10;
constexpr std::int64_t kPartRequests = std::int64_t{1} << 17;
constexpr std::int64_t kGroupRequests = 1024;  // that one thread looks up at a time
constexpr std::size_t kMeasuredFragments = 4096;  // misses from which on it pays to know the disk

// The smallest blocks of which the space has fewer than 2^32.
std::uint32_t block_unit_bytes(std::uint64_t space_bytes) {
  std::uint32_t bytes = kSmallestBlockBytes;
  while (space_bytes / bytes >= UINT32_MAX - 1) {
    bytes *= 2;
  }
  if (bytes > kBlockBytes) {
    throw Error(ErrorKind::kUsage,
                "expected files of less than 16 TiB in all, received " + std::to_string(space_bytes) + " bytes");
  }
  return bytes;
}

unsigned checked_depth(unsigned depth) {
  if (depth < 1 || depth > 4096) {
    throw Error(ErrorKind::kUsage, "expected 1 to 4096 reads in flight, received " + std::to_string(depth), "depth");
  }
  return depth;
}

UnitLayout block_layout(std::uint64_t space_bytes, std::uint32_t unit_bytes) {
  return {0, unit_bytes, static_cast<std::uint32_t>(space_bytes / unit_bytes)};
}

}  // namespace

Store::Store(const std::vector<FileSize>& files, const RowUnits* rows, const StoreOptions& options)
    : space_(files, options.direct),
      options_(options),
      backend_(choose_backend(options.backend, checked_depth(options.depth))) {
  choose_cache(rows);
}

void Store::choose_cache(const RowUnits* rows) {
  if (space_.bytes() > 0 && resident_cache_bytes(space_.bytes()) <= options_.budget_bytes &&
      space_.bytes() / kBlockBytes < UINT32_MAX) {
    layout_ = block_layout(space_.bytes(), kBlockBytes);
    cache_ = make_resident_cache(space_.bytes());
    resident_ = true;
  } else if (rows != nullptr && rows->row_bytes >= kSmallestRowUnitBytes && rows->row_bytes <= kLargestRowUnitBytes &&
             rows->rows < UINT32_MAX) {
    layout_ = {rows->offset, static_cast<std::uint32_t>(rows->row_bytes), static_cast<std::uint32_t>(rows->rows)};
    units_are_rows_ = true;
  } else {
    layout_ = block_layout(space_.bytes(), block_unit_bytes(space_.bytes()));
  }
  if (!resident_) {
    cache_ = make_sieve_cache(layout_, options_.budget_bytes);
  }
  unit_shift_ = static_cast<unsigned>(std::countr_zero(layout_.unit_bytes));
}

std::string Store::backend() const { return backend_.text + (space_.direct() ? ", O_DIRECT" : ", buffered"); }

std::string Store::cache_kind() const { return resident_ ? "resident" : cache_ != nullptr ? "sieve" : "none"; }

StoreStats Store::stats() const {
  return {requests_, hits_, misses_, read_bytes_, read_requests_, cache_ != nullptr ? cache_->resident_bytes() : 0};
}

void Store::count_hits(std::size_t requests) {
  requests_.fetch_add(requests, std::memory_order_relaxed);
  hits_.fetch_add(requests, std::memory_order_relaxed);
}

void Store::append(std::uint64_t address, std::uint64_t bytes, std::byte* target,
                   std::vector<Fragment>& fragments) const {
  if (units_are_rows_) {
    const auto row = static_cast<std::uint32_t>((address - layout_.base) / layout_.unit_bytes);
    fragments.push_back({target, row, 0, static_cast<std::uint32_t>(bytes)});
    return;
  }
  const std::uint64_t mask = layout_.unit_bytes - 1;
  while (bytes > 0) {
    const auto within = static_cast<std::uint32_t>(address & mask);
    const auto here = static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes, layout_.unit_bytes - within));
    fragments.push_back({target, static_cast<std::uint32_t>(address >> unit_shift_), within, here});
    address += here;
    target += here;
    bytes -= here;
  }
}

void Store::read(const Requests& requests, const Source& source) {
  const auto count = static_cast<std::int64_t>(requests.index.size());
  requests_.fetch_add(static_cast<std::uint64_t>(count), std::memory_order_relaxed);
  if (count <= kPartRequests) {
    read_part(requests, nullptr, 0, count, requests.threads, source);
    return;
  }
  const PassOrder order = order_pass(requests.index, requests.limit, kPartRequests, requests.threads);
  parallel_for(requests.threads, order.parts(), [&](std::int64_t part) {
    const auto number = static_cast<std::size_t>(part);
    read_part(requests, order.positions.data(), order.bounds[number], order.bounds[number + 1], 1, source);
  });
}

void Store::read_part(const Requests& requests, const std::uint32_t* positions, std::int64_t first, std::int64_t last,
                      int threads, const Source& source) {
  const std::int64_t groups = (last - first + kGroupRequests - 1) / kGroupRequests;
  std::vector<std::vector<Fragment>> missing(static_cast<std::size_t>(groups));
  parallel_for(threads, groups, [&](std::int64_t group) {
    std::vector<Fragment>& absent = missing[static_cast<std::size_t>(group)];
    std::vector<Fragment> fragments;
    fragments.reserve(static_cast<std::size_t>(kGroupRequests) * 2);
    const std::int64_t begin = first + group * kGroupRequests;
    source(positions, begin, std::min(begin + kGroupRequests, last), fragments);
    const std::size_t wanted = fragments.size();
    if (cache_ != nullptr) {
      cache_->copy(fragments, requests.streamed, absent);
    } else {
      absent = std::move(fragments);
    }
    hits_.fetch_add(wanted - absent.size(), std::memory_order_relaxed);
    misses_.fetch_add(absent.size(), std::memory_order_relaxed);
  });
  std::vector<Fragment> all = groups > 0 ? std::move(missing.front()) : std::vector<Fragment>();
  for (std::size_t group = 1; group < missing.size(); ++group) {
    all.insert(all.end(), missing[group].begin(), missing[group].end());
    missing[group] = {};
  }
  if (!all.empty()) {
    read_missing(all, requests);
  }
}

void Store::read_missing(std::span<const Fragment> missing, const Requests& requests) {
  const LentReader reader(backend_.backend, options_.depth);
  const PooledArray<std::uint32_t> order = order_by_unit(missing);
  const BlockFile& any = *space_.at(layout_.begin(missing[order[0]].unit)).file;
  const DiskCost cost = missing.size() < kMeasuredFragments ? usual_disk_cost() : disk_cost(any, *reader.get());
  ReadPlan plan(space_, layout_, missing, {order.begin(), order.end()}, cost.bridged_bytes());
  std::vector<WantedUnit> wanted;
  std::uint64_t bytes = 0;
  std::uint64_t reads = 0;
  reader->read([&](Stretch& stretch) { return plan.next(stretch); },
               [&](const Stretch& stretch, const std::byte* data) {
                 const ReadPlan::Part& part = plan.part(stretch.tag);
                 wanted.clear();
                 for (const std::uint32_t position : part.order) {
                   const Fragment& each = missing[position];
                   const std::uint64_t place = layout_.begin(each.unit) + each.within - part.begin;
                   copy_range({data + place, each.target, each.bytes}, requests.streamed);
                   if (wanted.empty() || wanted.back().unit != each.unit) {
                     wanted.push_back({each.unit, 0});
                   }
                   ++wanted.back().uses;
                 }
                 finish_copies(requests.streamed);
                 if (cache_ != nullptr) {
                   cache_->offer({part.begin, part.end, data, wanted}, requests.access);
                 }
                 bytes += stretch.bytes;
                 ++reads;
               });
  read_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  read_requests_.fetch_add(reads, std::memory_order_relaxed);
}

}  // namespace graphbox
