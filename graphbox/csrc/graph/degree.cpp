#include "graph/degree.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "io/array_file.h"
#include "io/file.h"
#include "parallel/parallel_for.h"

namespace graphbox {
namespace {

constexpr std::int64_t kIndptrChunk = std::int64_t{1} << 16;   // nodes, a multiple of 64
constexpr std::int64_t kIndicesBlock = std::int64_t{1} << 19;  // edges
constexpr std::int64_t kReadChunk = std::int64_t{1} << 16;     // edges
constexpr std::int64_t kFewestCounts = std::int64_t{1} << 16;  // nodes, a multiple of 64

// Counts nodes [first, end) into `counts`, each thread its own part of them.
template <typename Index, typename Count>
void count_window(const FileReader& file, std::int64_t num_edges, std::int64_t first, std::int64_t end, Count* counts,
                  int threads) {
  std::vector<Index> block(static_cast<std::size_t>(std::min(kIndicesBlock, num_edges)));
  for (std::int64_t start = 0; start < num_edges; start += kIndicesBlock) {
    const std::int64_t size = std::min(kIndicesBlock, num_edges - start);
    parallel_for(threads, (size + kReadChunk - 1) / kReadChunk, [&](std::int64_t chunk) {
      const std::int64_t from = chunk * kReadChunk;
      const auto bytes = static_cast<std::size_t>(std::min(kReadChunk, size - from)) * sizeof(Index);
      file.read(block.data() + from, bytes, kArrayHeaderBytes + static_cast<std::uint64_t>(start + from) * sizeof(Index));
    });
    parallel_for(threads, threads, [&](std::int64_t part) {
      const std::int64_t low = first + (end - first) * part / threads;
      const auto width = static_cast<std::uint64_t>(first + (end - first) * (part + 1) / threads - low);
      for (std::int64_t i = 0; i < size; ++i) {
        const auto place = static_cast<std::uint64_t>(static_cast<std::int64_t>(block[static_cast<std::size_t>(i)]) - low);
        if (place < width) {
          ++counts[low - first + static_cast<std::int64_t>(place)];
        }
      }
    });
  }
}

// Adds what `degree_of(node)` says of nodes [first, end), in chunks of whole words of bits.
template <typename DegreeOf>
void add_degrees(DegreeHistogram& histogram, NodeBits& used, std::int64_t first, std::int64_t end,
                 DegreeOf&& degree_of) {
  for (std::int64_t node = first; node < end; ++node) {
    const std::int64_t degree = degree_of(node);
    histogram.add(degree);
    if (degree > 0) {
      used.set(node);
    }
  }
}

template <typename Index, typename Count>
DegreeHistogram degrees_by_windows(const FileReader& file, std::int64_t num_edges, std::int64_t num_nodes,
                                   NodeBits& used, std::int64_t window, int threads) {
  DegreeHistogram histogram;
  for (std::int64_t first = 0; first < num_nodes; first += window) {
    const std::int64_t end = std::min(num_nodes, first + window);
    GrowingArray<Count> counts(static_cast<std::size_t>(end - first));
    count_window<Index>(file, num_edges, first, end, counts.data(), threads);
    std::vector<DegreeHistogram> parts(static_cast<std::size_t>((end - first + kIndptrChunk - 1) / kIndptrChunk));
    parallel_for(threads, static_cast<std::int64_t>(parts.size()), [&](std::int64_t part) {
      const std::int64_t start = first + part * kIndptrChunk;
      add_degrees(parts[static_cast<std::size_t>(part)], used, start, std::min(end, start + kIndptrChunk),
                  [&](std::int64_t node) { return static_cast<std::int64_t>(counts.data()[node - first]); });
    });
    for (const DegreeHistogram& part : parts) {
      histogram.add(part);
    }
  }
  return histogram;
}

}  // namespace

void DegreeHistogram::add(const DegreeHistogram& other) {
  for (const auto& [degree, nodes] : other.pairs()) {
    add(degree, nodes);
  }
}

std::vector<std::pair<std::int64_t, std::int64_t>> DegreeHistogram::pairs() const {
  std::vector<std::pair<std::int64_t, std::int64_t>> all;
  for (std::size_t degree = 0; degree < dense_.size(); ++degree) {
    if (dense_[degree] != 0) {
      all.emplace_back(static_cast<std::int64_t>(degree), dense_[degree]);
    }
  }
  all.insert(all.end(), sparse_.begin(), sparse_.end());
  return all;
}

void NodeBits::resize(std::int64_t num_nodes) {
  const auto words = static_cast<std::size_t>((num_nodes + 63) / 64);
  if (words > words_.capacity()) {
    GrowingArray<std::uint64_t> larger(words);
    larger.append(words_.data(), words_.size());
    words_ = std::move(larger);
  }
  words_.resize(words);
}

std::int64_t NodeBits::count() const {
  std::int64_t set = 0;
  for (std::size_t i = 0; i < words_.size(); ++i) {
    set += std::popcount(words_[i]);
  }
  return set;
}

DegreeHistogram degrees_of_indptr(const std::string& path, std::int64_t num_nodes, NodeBits& used, int threads) {
  used.resize(num_nodes);
  const FileReader file(path);
  const std::int64_t chunks = (num_nodes + kIndptrChunk - 1) / kIndptrChunk;
  std::vector<DegreeHistogram> parts(static_cast<std::size_t>(std::max(threads, 1)));
  parallel_for(threads, static_cast<std::int64_t>(parts.size()), [&](std::int64_t part) {
    std::vector<std::int64_t> starts(static_cast<std::size_t>(kIndptrChunk) + 1);
    const auto of = [&](std::int64_t of_part) { return chunks * of_part / static_cast<std::int64_t>(parts.size()); };
    for (std::int64_t chunk = of(part); chunk < of(part + 1); ++chunk) {
      const std::int64_t first = chunk * kIndptrChunk;
      const std::int64_t end = std::min(num_nodes, first + kIndptrChunk);
      file.read(starts.data(), static_cast<std::size_t>(end - first + 1) * 8,
                kArrayHeaderBytes + static_cast<std::uint64_t>(first) * 8);
      add_degrees(parts[static_cast<std::size_t>(part)], used, first, end, [&](std::int64_t node) {
        const auto place = static_cast<std::size_t>(node - first);
        return starts[place + 1] - starts[place];
      });
    }
  });
  DegreeHistogram histogram;
  for (const DegreeHistogram& part : parts) {
    histogram.add(part);
  }
  return histogram;
}

DegreeHistogram degrees_of_indices(const std::string& path, bool wide, std::int64_t num_edges, std::int64_t num_nodes,
                                   NodeBits& used, std::size_t memory_bytes, int threads) {
  used.resize(num_nodes);
  const FileReader file(path);
  const bool many = num_edges >> 32 != 0;
  const auto fitting = static_cast<std::int64_t>(memory_bytes / (many ? 8 : 4));
  const std::int64_t window = std::max(kFewestCounts, fitting / kIndptrChunk * kIndptrChunk);
  const int workers = std::max(threads, 1);
  const auto degrees = [&](auto index, auto count) {
    return degrees_by_windows<decltype(index), decltype(count)>(file, num_edges, num_nodes, used, window, workers);
  };
  if (wide) {
    return many ? degrees(std::int64_t{}, std::uint64_t{}) : degrees(std::int64_t{}, std::uint32_t{});
  }
  return many ? degrees(std::int32_t{}, std::uint64_t{}) : degrees(std::int32_t{}, std::uint32_t{});
}

}  // namespace graphbox
