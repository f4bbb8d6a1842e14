#include "io/scratch_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "io/file.h"

namespace graphbox {

ScratchFile::ScratchFile(std::string folder) : folder_(std::move(folder)) {
#ifdef O_TMPFILE
  descriptor_ = ::open(folder_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
#endif
  if (descriptor_ < 0) {  // a file system that has no files without a name
    std::string path = folder_ + "/scratch-XXXXXX";
    descriptor_ = ::mkstemp(path.data());
    if (descriptor_ < 0) {
      throw_system_error("cannot create a temporary file", folder_);
    }
    ::fcntl(descriptor_, F_SETFD, FD_CLOEXEC);
    ::unlink(path.c_str());
  }
}

ScratchFile::~ScratchFile() { ::close(descriptor_); }

void ScratchFile::write(const void* data, std::size_t bytes, std::uint64_t offset) {
  write_fully(descriptor_, data, bytes, offset, folder_);
  start_writeback(descriptor_, offset, bytes);
}

void ScratchFile::read(void* data, std::size_t bytes, std::uint64_t offset) const {
  read_fully(descriptor_, data, bytes, offset, folder_);
}

void ScratchFile::will_read(std::uint64_t offset, std::size_t bytes) const {
#ifdef POSIX_FADV_WILLNEED
  ::posix_fadvise(descriptor_, static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);
#else
  static_cast<void>(offset), static_cast<void>(bytes);
#endif
}

}  // namespace graphbox
