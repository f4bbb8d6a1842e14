// The image of a whole space in memory, filled as its blocks are read.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "memory/buffer.h"
#include "portability/cpu.h"
#include "store/cache.h"
#include "store/gather.h"

namespace graphbox {
namespace {

constexpr std::size_t kDistance = 32;  // fragments that memory is asked for ahead

class ResidentCache : public Cache {
 public:
  explicit ResidentCache(std::uint64_t space_bytes)
      : image_(space_bytes), blocks_(space_bytes / kBlockBytes), states_(blocks_) {
    std::memset(states_.data(), kAbsent, blocks_);
  }

  void copy(std::span<const Fragment> fragments, bool streamed, std::vector<Fragment>& missing) override {
    for (std::size_t i = 0; i < fragments.size(); ++i) {
      if (i + kDistance < fragments.size()) {
        prefetch(states_.data() + fragments[i + kDistance].unit);
        prefetch_range(address(fragments[i + kDistance]), fragments[i + kDistance].bytes);
      }
      const Fragment& each = fragments[i];
      if (state(each.unit).load(std::memory_order_acquire) == kPresent) {
        copy_range({address(each), each.target, each.bytes}, streamed);
      } else {
        missing.push_back(each);
      }
    }
    finish_copies(streamed);
  }

  void offer(const ReadStretch& stretch, Access) override {
    for (std::uint64_t begin = stretch.begin; begin < stretch.end; begin += kBlockBytes) {
      std::atomic_ref<std::uint8_t> block = state(begin / kBlockBytes);
      std::uint8_t expected = kAbsent;
      if (!block.compare_exchange_strong(expected, kWriting, std::memory_order_relaxed)) {
        continue;
      }
      const std::uint64_t bytes = std::min<std::uint64_t>(kBlockBytes, stretch.end - begin);
      std::memcpy(image_.data() + begin, stretch.data + (begin - stretch.begin), bytes);
      block.store(kPresent, std::memory_order_release);
      present_.fetch_add(1, std::memory_order_release);
    }
  }

  const std::byte* image() const override {
    return present_.load(std::memory_order_acquire) == blocks_ ? image_.data() : nullptr;
  }

  std::uint64_t resident_bytes() const override {
    return present_.load(std::memory_order_relaxed) * kBlockBytes + states_.bytes();
  }

 private:
  static constexpr std::uint8_t kAbsent = 0;
  static constexpr std::uint8_t kWriting = 1;
  static constexpr std::uint8_t kPresent = 2;

  std::atomic_ref<std::uint8_t> state(std::uint64_t block) const {
    return std::atomic_ref<std::uint8_t>(reinterpret_cast<std::uint8_t*>(states_.data())[block]);
  }
  const std::byte* address(const Fragment& each) const {
    return image_.data() + std::uint64_t{each.unit} * kBlockBytes + each.within;
  }

  Buffer image_;
  std::uint64_t blocks_;
  Buffer states_;
  std::atomic<std::uint64_t> present_{0};
};

}  // namespace

std::uint64_t resident_cache_bytes(std::uint64_t space_bytes) {
  return buffer_bytes(space_bytes) + buffer_bytes(space_bytes / kBlockBytes);
}

std::unique_ptr<Cache> make_resident_cache(std::uint64_t space_bytes) {
  return std::make_unique<ResidentCache>(space_bytes);
}

}  // namespace graphbox
