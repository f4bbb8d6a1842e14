#include "io/block_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <system_error>
#include <utility>

#include "errors/error.h"

namespace graphbox {
namespace {

// File systems that take O_DIRECT when opening and refuse it when reading show it here.
bool reads_directly(int descriptor) {
  const std::unique_ptr<void, decltype(&std::free)> block(std::aligned_alloc(kBlockBytes, kBlockBytes), &std::free);
  return block != nullptr && ::pread(descriptor, block.get(), kBlockBytes, 0) >= 0;
}

}  // namespace

BlockFile::BlockFile(std::string path, std::uint64_t expected_bytes, bool direct, std::string repair)
    : path_(std::move(path)), repair_(std::move(repair)), bytes_(expected_bytes) {
  buffered_descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status{};
  if (buffered_descriptor_ < 0 || ::fstat(buffered_descriptor_, &status) != 0) {
    const int code = errno;
    if (buffered_descriptor_ >= 0) {
      ::close(buffered_descriptor_);
    }
    throw Error(code == ENOENT || code == ENOTDIR ? ErrorKind::kNotFound : ErrorKind::kFailure,
                "cannot open the file: " + std::generic_category().message(code), path_,
                "open the graph again: another import may have replaced it");
  }
  if (static_cast<std::uint64_t>(status.st_size) != bytes_) {
    ::close(buffered_descriptor_);
    throw Error(ErrorKind::kFormat,
                "expected a file of " + std::to_string(bytes_) + " bytes, received one of " +
                    std::to_string(status.st_size) + ": it is damaged or truncated",
                path_, repair_);
  }
  device_ = static_cast<std::uint64_t>(status.st_dev);
  ::posix_fadvise(buffered_descriptor_, 0, 0, POSIX_FADV_RANDOM);  // a hint
  if (direct) {
    direct_descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (direct_descriptor_ >= 0 && !reads_directly(direct_descriptor_)) {
      ::close(direct_descriptor_);
      direct_descriptor_ = -1;
    }
  }
}

BlockFile::~BlockFile() {
  if (direct_descriptor_ >= 0) {
    ::close(direct_descriptor_);
  }
  ::close(buffered_descriptor_);
}

void BlockFile::throw_truncated(std::uint64_t offset) const {
  struct stat status{};
  const bool known = ::fstat(buffered_descriptor_, &status) == 0;
  throw Error(ErrorKind::kFormat,
              "expected " + std::to_string(bytes_) + " bytes, there is nothing to read at byte " +
                  std::to_string(offset) +
                  (known ? ": the file now has " + std::to_string(status.st_size) + " bytes" : std::string()),
              path_, repair_);
}

void BlockFile::throw_unreadable(std::uint64_t offset, int code) const {
  throw Error(ErrorKind::kData,
              "cannot read at byte " + std::to_string(offset) + ": " + std::generic_category().message(code), path_,
              "check the disk; " + repair_);
}

}  // namespace graphbox
