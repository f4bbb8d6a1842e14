#include "store/read_plan.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <utility>

#include "portability/cpu.h"

namespace graphbox {
namespace {

constexpr DiskCost kUsualCost = {15e-6, 1e-9};
constexpr std::uint64_t kSmallestMeasuredBytes = std::uint64_t{64} << 20;
constexpr std::uint32_t kMeasuredBytes = 256 << 10;
constexpr int kMeasuredReads = 1024;
constexpr int kMeasuredLargeReads = 64;

std::uint64_t block_begin(std::uint64_t address) { return address / kBlockBytes * kBlockBytes; }
std::uint64_t block_end(std::uint64_t address) { return block_begin(address + kBlockBytes - 1); }

// Seconds that one of `count` reads of that many bytes at random places takes.
double seconds_per_read(const BlockFile& file, BlockReader& reader, std::uint32_t bytes, int count) {
  std::uint64_t state = 0x9E3779B97F4A7C15ULL;
  const std::uint64_t places = (file.bytes() - bytes) / kBlockBytes;
  int begun = 0;
  const auto start = std::chrono::steady_clock::now();
  reader.read(
      [&](Stretch& stretch) {
        state = state * 0xD1342543DE82EF95ULL + 1;
        const auto place = static_cast<std::uint64_t>(static_cast<Uint128>(state) * places >> 64);
        stretch = {&file, place * kBlockBytes, bytes, 0};
        return begun++ < count;
      },
      [](const Stretch&, const std::byte*) {});
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / count;
}

DiskCost measured_cost(const BlockFile& file, BlockReader& reader) {
  const double small = seconds_per_read(file, reader, kBlockBytes, kMeasuredReads);
  const double large = seconds_per_read(file, reader, kMeasuredBytes, kMeasuredLargeReads);
  const double per_byte = std::max(large - small, large * 0.1) / (kMeasuredBytes - kBlockBytes);
  return {std::max(small - per_byte * kBlockBytes, 0.0), per_byte};
}

}  // namespace

std::uint64_t DiskCost::bridged_bytes() const {
  return static_cast<std::uint64_t>(
      std::min(seconds_per_read / seconds_per_byte, static_cast<double>(BlockReader::kLargestStretchBytes) / 4));
}

DiskCost usual_disk_cost() { return kUsualCost; }

DiskCost disk_cost(const BlockFile& file, BlockReader& reader) {
  static std::mutex mutex;
  static std::map<std::pair<std::uint64_t, bool>, DiskCost> known;
  const std::lock_guard lock(mutex);  // held while measuring: two at once would disturb each other
  const auto disk = std::pair(file.device(), file.direct());
  const auto found = known.find(disk);
  if (found != known.end()) {
    return found->second;
  }
  if (file.bytes() < kSmallestMeasuredBytes) {
    return kUsualCost;
  }
  return known[disk] = measured_cost(file, reader);
}

ReadPlan::ReadPlan(const BlockSpace& space, const UnitLayout& layout, std::span<const Fragment> fragments,
                   std::span<const std::uint32_t> order, std::uint64_t bridged_bytes)
    : space_(space), layout_(layout), fragments_(fragments), order_(order), bridged_bytes_(bridged_bytes) {}

bool ReadPlan::next(Stretch& stretch) {
  if (next_ == order_.size()) {
    return false;
  }
  const std::size_t first = next_;
  const std::uint64_t start = layout_.begin(fragments_[order_[first]].unit);
  const BlockSpace::Place place = space_.at(start);
  const std::uint64_t begin = block_begin(start);
  std::uint64_t end = begin;
  for (; next_ < order_.size(); ++next_) {
    const std::uint64_t unit_begin = layout_.begin(fragments_[order_[next_]].unit);
    const std::uint64_t unit_end = block_end(std::min(unit_begin + layout_.unit_bytes, place.end));
    if (unit_begin >= place.end || (next_ > first && block_begin(unit_begin) > end + bridged_bytes_) ||
        unit_end - begin > BlockReader::kLargestStretchBytes) {
      break;
    }
    end = std::max(end, unit_end);
  }
  end = std::min(end, place.end);
  stretch = {place.file, begin - place.base, static_cast<std::uint32_t>(end - begin), parts_.size()};
  parts_.push_back({begin, end, order_.subspan(first, next_ - first)});
  return true;
}

}  // namespace graphbox
