#include "graph/run_merge.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "errors/error.h"
#include "graph/edge_record.h"
#include "parallel/parallel_for.h"

namespace graphbox {
namespace {

constexpr std::int64_t kSamples = 64;  // of each run, to cut what is merged into slices

// The smallest of the next keys of several runs, and of equal ones the first run's. A tree of losers: Knuth, The Art of
// Computer Programming, volume 3, 5.4.1.
template <typename Key>
class Tournament {
 public:
  // `next[run]` to `end[run]` are the keys of a run.
  Tournament(std::vector<const Key*> next, std::vector<const Key*> end) : next_(std::move(next)), end_(std::move(end)) {
    size_ = 1;
    while (size_ < next_.size()) {
      size_ *= 2;
    }
    next_.resize(size_, nullptr);
    end_.resize(size_, nullptr);
    losers_.resize(size_);
    winner_ = play(1);
  }

  bool done() const { return winner_.ended; }
  std::size_t run() const { return winner_.run; }
  Key key() const { return winner_.key; }
  const Key* place() const { return next_[winner_.run]; }

  void pop() {
    ++next_[winner_.run];
    winner_ = entrant(winner_.run);
    for (std::size_t match = (size_ + winner_.run) / 2; match > 0; match /= 2) {
      if (before(losers_[match], winner_)) {
        std::swap(losers_[match], winner_);
      }
    }
  }

 private:
  struct Entrant {
    Key key;
    std::size_t run;
    bool ended;
  };

  Entrant entrant(std::size_t run) const {
    return next_[run] == end_[run] ? Entrant{~Key{0}, run, true} : Entrant{*next_[run], run, false};
  }

  static bool before(const Entrant& a, const Entrant& b) {
    return a.key != b.key ? a.key < b.key : a.ended != b.ended ? b.ended : a.run < b.run;
  }

  Entrant play(std::size_t match) {
    if (match >= size_) {
      return entrant(match - size_);
    }
    Entrant left = play(2 * match);
    Entrant right = play(2 * match + 1);
    const bool left_wins = before(left, right);
    losers_[match] = left_wins ? right : left;
    return left_wins ? left : right;
  }

  std::vector<const Key*> next_;
  std::vector<const Key*> end_;
  std::size_t size_ = 1;
  std::vector<Entrant> losers_;
  Entrant winner_{};
};

}  // namespace

template <typename Record>
RunMerge<Record>::RunMerge(const ScratchFile& scratch, const std::vector<EdgeRun>& runs,
                           const std::vector<std::size_t>& column_bytes, std::size_t memory_bytes, int threads)
    : scratch_(scratch), runs_(runs), column_bytes_(column_bytes), threads_(threads), parts_(runs.size()) {
  std::size_t row_bytes = sizeof(Key) + sizeof(Record);
  for (const std::size_t bytes : column_bytes) {
    row_bytes += bytes;
  }
  const std::size_t fixed = kWorkingBytes + (2 + column_bytes.size()) * kHugePageBytes;
  const std::size_t fewest = fixed + static_cast<std::size_t>(kFewestRows) * runs.size() * row_bytes;
  if (memory_bytes < fewest) {
    throw Error(ErrorKind::kDoesNotFit,
                "expected at least " + std::to_string(fewest) + " bytes of memory to merge " +
                    std::to_string(runs.size()) + " sorted runs, received " + std::to_string(memory_bytes),
                {}, "give more memory");
  }
  const std::int64_t most = (std::int64_t{1} << 32) / static_cast<std::int64_t>(runs.size()) - 1;
  rows_ = std::min(static_cast<std::int64_t>((memory_bytes - fixed) / row_bytes / runs.size()), most);
  const std::size_t rows = static_cast<std::size_t>(rows_) * runs.size();
  keys_ = GrowingArray<Key>(rows);
  merged_ = GrowingArray<Record>(rows);
  for (const std::size_t bytes : column_bytes) {
    columns_.emplace_back(rows * bytes);
  }
}

// Reads on where the run was left: what is still held moves to the front, what follows goes behind it.
template <typename Record>
void RunMerge<Record>::fill(std::size_t index) {
  const EdgeRun& run = runs_[index];
  Part& part = parts_[index];
  const std::int64_t left = part.end - part.start;
  const std::int64_t more = std::min(rows_ - left, run.size - part.read);
  if (more == 0) {
    return;
  }
  const auto bring = [&](std::byte* place, std::size_t bytes, std::uint64_t offset, std::size_t stored_bytes) {
    std::memmove(place, place + static_cast<std::size_t>(part.start) * bytes, static_cast<std::size_t>(left) * bytes);
    const std::uint64_t next = offset + static_cast<std::uint64_t>(part.read) * stored_bytes;
    scratch_.read(place + static_cast<std::size_t>(left) * bytes, static_cast<std::size_t>(more) * stored_bytes, next);
    const std::int64_t later = std::min(rows_, run.size - part.read - more);
    scratch_.will_read(next + static_cast<std::uint64_t>(more) * stored_bytes,
                       static_cast<std::size_t>(later) * stored_bytes);
  };
  Key* const keys = keys_of(index);
  const std::size_t stored_key_bytes = run.wide ? sizeof(WideKey) : sizeof(NarrowKey);
  bring(reinterpret_cast<std::byte*>(keys), sizeof(Key), run.keys, stored_key_bytes);
  if (stored_key_bytes < sizeof(Key)) {  // from behind: a wide key takes the place of two narrow ones
    const auto* const narrow = reinterpret_cast<const std::byte*>(keys + left);
    for (std::int64_t i = more - 1; i >= 0; --i) {
      NarrowKey key;
      std::memcpy(&key, narrow + static_cast<std::size_t>(i) * sizeof key, sizeof key);
      keys[left + i] = key_of<Key>(target_of(key), source_of(key));
    }
  }
  for (std::size_t column = 0; column < columns_.size(); ++column) {
    const std::size_t bytes = column_bytes_[column];
    bring(columns_[column].data() + index * static_cast<std::size_t>(rows_) * bytes, bytes, run.columns[column], bytes);
  }
  part.read += more;
  part.start = 0;
  part.end = left + more;
}

// Up to where each part can be passed on.
template <typename Record>
std::vector<std::int64_t> RunMerge<Record>::safe_ends() {
  std::size_t limiting = runs_.size();
  for (std::size_t run = 0; run < runs_.size(); ++run) {
    const bool more = parts_[run].read < runs_[run].size;
    if (more && (limiting == runs_.size() || keys_of(run)[parts_[run].end - 1] <
                                                 keys_of(limiting)[parts_[limiting].end - 1])) {
      limiting = run;
    }
  }
  std::vector<std::int64_t> ends;
  for (std::size_t run = 0; run < runs_.size(); ++run) {
    const Key* const keys = keys_of(run);
    const Key* end = keys + parts_[run].end;
    if (limiting != runs_.size()) {
      const Key last = keys_of(limiting)[parts_[limiting].end - 1];
      end = run <= limiting ? std::upper_bound(keys + parts_[run].start, end, last)
                            : std::lower_bound(keys + parts_[run].start, end, last);
    }
    ends.push_back(end - keys);
  }
  return ends;
}

// Cuts what can be passed on into slices of about the same size, at keys, so that equal ones stay together. Returns the
// places of the cuts in each run, beginning and end among them.
template <typename Record>
std::vector<std::vector<std::int64_t>> RunMerge<Record>::cut(const std::vector<std::int64_t>& ends) {
  struct Sample {
    Key key;
    std::int64_t weight;
  };
  std::vector<Sample> samples;
  std::int64_t total = 0;
  for (std::size_t run = 0; run < runs_.size(); ++run) {
    const std::int64_t start = parts_[run].start;
    const std::int64_t size = ends[run] - start;
    total += size;
    for (std::int64_t i = 0; i < kSamples; ++i) {
      const std::int64_t from = size * i / kSamples;
      const std::int64_t to = size * (i + 1) / kSamples;
      if (to > from) {
        samples.push_back({keys_of(run)[start + from], to - from});
      }
    }
  }
  std::sort(samples.begin(), samples.end(), [](const Sample& a, const Sample& b) { return a.key < b.key; });
  std::vector<std::vector<std::int64_t>> cuts(1);
  for (const Part& part : parts_) {
    cuts[0].push_back(part.start);
  }
  const std::int64_t slices = 8 * std::int64_t{threads_};
  std::int64_t seen = 0;
  for (const Sample& sample : samples) {
    if (seen * slices >= total * static_cast<std::int64_t>(cuts.size())) {
      std::vector<std::int64_t> places;
      for (std::size_t run = 0; run < runs_.size(); ++run) {
        const Key* const keys = keys_of(run);
        places.push_back(std::lower_bound(keys + parts_[run].start, keys + ends[run], sample.key) - keys);
      }
      cuts.push_back(std::move(places));
    }
    seen += sample.weight;
  }
  cuts.push_back(ends);
  return cuts;
}

template <typename Record>
void RunMerge<Record>::merge_slice(const std::vector<std::int64_t>& firsts, const std::vector<std::int64_t>& ends,
                                   Record* to) {
  std::vector<const Key*> next;
  std::vector<const Key*> end;
  for (std::size_t run = 0; run < runs_.size(); ++run) {
    if (ends[run] > firsts[run]) {
      next.push_back(keys_of(run) + firsts[run]);
      end.push_back(keys_of(run) + ends[run]);
    }
  }
  if (next.empty()) {
    return;
  }
  for (Tournament<Key> tournament(std::move(next), std::move(end)); !tournament.done(); tournament.pop(), ++to) {
    to->key = tournament.key();
    if constexpr (Record::kHasRow) {
      to->row = static_cast<std::uint32_t>(tournament.place() - keys_.data());
    }
  }
}

template <typename Record>
void RunMerge<Record>::emit_all(EdgeEmitter& emitter) {
  std::vector<const std::byte*> columns;
  for (const GrowingArray<std::byte>& column : columns_) {
    columns.push_back(column.data());
  }
  for (;;) {
    parallel_for(threads_, static_cast<std::int64_t>(runs_.size()),
                 [&](std::int64_t run) { fill(static_cast<std::size_t>(run)); });
    const std::vector<std::int64_t> ends = safe_ends();
    const std::vector<std::vector<std::int64_t>> cuts = cut(ends);
    std::vector<std::int64_t> places(1, 0);
    for (std::size_t slice = 0; slice + 1 < cuts.size(); ++slice) {
      std::int64_t size = 0;
      for (std::size_t run = 0; run < runs_.size(); ++run) {
        size += cuts[slice + 1][run] - cuts[slice][run];
      }
      places.push_back(places.back() + size);
    }
    if (places.back() == 0) {
      return;
    }
    parallel_for(threads_, static_cast<std::int64_t>(cuts.size()) - 1, [&](std::int64_t i) {
      const auto slice = static_cast<std::size_t>(i);
      merge_slice(cuts[slice], cuts[slice + 1], merged_.data() + places[slice]);
    });
    emitter.emit(merged_.data(), places.back(), columns);
    for (std::size_t run = 0; run < runs_.size(); ++run) {
      parts_[run].start = ends[run];
    }
  }
}

template class RunMerge<EdgeAlone<NarrowKey>>;
template class RunMerge<EdgeAlone<WideKey>>;
template class RunMerge<EdgeWithRow<NarrowKey>>;
template class RunMerge<EdgeWithRow<WideKey>>;

}  // namespace graphbox
