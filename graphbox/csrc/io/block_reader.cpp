#include "io/block_reader.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <mutex>
#include <utility>

namespace graphbox {
namespace {

std::size_t whole_blocks(std::size_t bytes) { return (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes; }

struct IdleReaders {
  static constexpr std::size_t kMost = 4;

  IdleReaders() { readers.reserve(kMost); }

  std::mutex mutex;
  std::vector<std::unique_ptr<BlockReader>> readers;
};

// Never destroyed. A fork gets its own: the rings and threads of the parent are not to be used there, nor closed.
IdleReaders& idle_readers() {
  static std::mutex mutex;
  static IdleReaders* current = nullptr;
  static pid_t owner = 0;
  const std::lock_guard lock(mutex);
  if (current == nullptr || owner != ::getpid()) {
    current = new IdleReaders();
    owner = ::getpid();
  }
  return *current;
}

}  // namespace

BlockReader::BlockReader(ReadBackend backend, unsigned depth)
    : backend_(backend),
      depth_(depth),
      staging_(kStagingBytes),
      flights_(std::size_t{depth} * 2),
      queue_(open_read_queue(backend, depth)) {}

// The staging memory is a ring: the newest flight begins where the one before ends, and room is got back from the
// oldest on. False where there is no room now.
bool BlockReader::reserve(std::size_t bytes, std::size_t& begin) const {
  if (in_flight_ >= depth_ || newest_ - oldest_ >= flights_.size()) {
    return false;
  }
  begin = 0;
  if (newest_ == oldest_) {
    return true;
  }
  const std::size_t needed = whole_blocks(bytes);
  const std::size_t tail = flight(oldest_).begin;
  const std::size_t head = flight(newest_ - 1).end;
  if (head <= tail) {  // free: [head, tail)
    begin = head;
    return needed < tail - head;
  }
  if (needed <= staging_.bytes() - head) {  // free: [head, end) and [0, tail)
    begin = head;
    return true;
  }
  return needed < tail;
}

void BlockReader::take_off(const Stretch& stretch, std::size_t begin) {
  flight(newest_) = {stretch, 0, begin, begin + whole_blocks(stretch.bytes), false};
  push(newest_);
  ++newest_;
  ++in_flight_;
}

void BlockReader::land(Flight& landed) {
  landed.completed = true;
  --in_flight_;
  while (oldest_ != newest_ && flight(oldest_).completed) {
    ++oldest_;
  }
}

void BlockReader::push(std::uint64_t number) {
  const Flight& each = flight(number);
  const Stretch& stretch = each.stretch;
  queue_->push({stretch.file->descriptor(), static_cast<std::uint32_t>(whole_blocks(stretch.bytes)) - each.got,
                stretch.offset + each.got, staging_.data() + each.begin + each.got, number});
}

void BlockReader::accept(const ReadResult& result, const Done& done) {
  Flight& each = flight(result.tag);
  const Stretch& stretch = each.stretch;
  const bool interrupted = result.bytes == -EINTR || result.bytes == -EAGAIN;
  const std::uint32_t got = each.got + (result.bytes > 0 ? static_cast<std::uint32_t>(result.bytes) : 0);
  const std::uint32_t whole = got - got % static_cast<std::uint32_t>(kBlockBytes);
  if (got < stretch.bytes && (interrupted || whole > each.got)) {
    each.got = whole;  // the rest, from a block on: what a direct read may begin at
    push(result.tag);
    return;
  }
  try {
    if (result.bytes < 0) {
      stretch.file->throw_unreadable(stretch.offset + each.got, static_cast<int>(-result.bytes));
    }
    if (got < stretch.bytes) {
      stretch.file->throw_truncated(stretch.offset + got);
    }
    done(stretch, staging_.data() + each.begin);
  } catch (...) {
    land(each);
    throw;
  }
  land(each);
}

void BlockReader::read(const Next& next, const Done& done) {
  std::exception_ptr error;
  const auto attempt = [&](const auto& step) {
    try {
      step();
    } catch (...) {
      error = error ? error : std::current_exception();
    }
  };
  Stretch stretch{};
  bool more = next(stretch);
  while ((more && !error) || in_flight_ > 0) {
    std::size_t begin = 0;
    attempt([&] {
      while (more && !error && reserve(stretch.bytes, begin)) {
        take_off(stretch, begin);
        more = next(stretch);
      }
    });
    if (in_flight_ > 0) {
      const ReadResult result = queue_->wait();
      attempt([&] { accept(result, done); });
    }
  }
  if (error) {
    std::rethrow_exception(error);
  }
}

LentReader::LentReader(ReadBackend backend, unsigned depth) {
  IdleReaders& idle = idle_readers();
  {
    const std::lock_guard lock(idle.mutex);
    const auto found = std::find_if(idle.readers.begin(), idle.readers.end(), [&](const auto& reader) {
      return reader->backend() == backend && reader->depth() == depth;
    });
    if (found != idle.readers.end()) {
      reader_ = std::move(*found);
      idle.readers.erase(found);
      return;
    }
  }
  reader_ = std::make_unique<BlockReader>(backend, depth);
}

LentReader::~LentReader() {
  if (!reader_->idle()) {
    static_cast<void>(reader_.release());  // the system may still write into its memory: better lost than freed
    return;
  }
  IdleReaders& idle = idle_readers();
  const std::lock_guard lock(idle.mutex);
  if (idle.readers.size() < IdleReaders::kMost) {
    idle.readers.push_back(std::move(reader_));
  }
}

std::size_t LentReader::held_bytes() {
  IdleReaders& idle = idle_readers();
  const std::lock_guard lock(idle.mutex);
  return idle.readers.size() * BlockReader::kStagingBytes;
}

void LentReader::release() {
  IdleReaders& idle = idle_readers();
  const std::lock_guard lock(idle.mutex);
  idle.readers.clear();
}

}  // namespace graphbox
