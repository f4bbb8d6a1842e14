#include "io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "errors/error.h"

namespace graphbox {
namespace {

constexpr std::size_t kLargestTransferBytes = std::size_t{1} << 30;

}  // namespace

void throw_system_error(const std::string& what, const std::string& path) {
  const int code = errno;
  const std::string message = what + ": " + std::generic_category().message(code);
  if (code == ENOENT || code == ENOTDIR) {
    throw Error(ErrorKind::kNotFound, message, path);
  }
  if (code == ENOSPC || code == EDQUOT || code == EFBIG) {
    throw Error(ErrorKind::kDoesNotFit, message, path, "free some disk space, or write somewhere else");
  }
  if (code == EROFS || code == EACCES || code == EPERM) {
    throw Error(ErrorKind::kFailure, message, path, "allow this user to use it, or choose another folder");
  }
  throw Error(ErrorKind::kFailure, message, path);
}

void write_fully(int descriptor, const void* data, std::size_t bytes, std::uint64_t offset, const std::string& path) {
  const auto* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written =
        ::pwrite(descriptor, next, std::min(bytes, kLargestTransferBytes), static_cast<off_t>(offset));
    if (written < 0) {
      if (errno == EINTR) {
        continue;
      }
      throw_system_error("cannot write " + std::to_string(bytes) + " bytes at byte " + std::to_string(offset), path);
    }
    next += written;
    offset += static_cast<std::uint64_t>(written);
    bytes -= static_cast<std::size_t>(written);
  }
}

void read_fully(int descriptor, void* data, std::size_t bytes, std::uint64_t offset, const std::string& path) {
  auto* next = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = ::pread(descriptor, next, std::min(bytes, kLargestTransferBytes), static_cast<off_t>(offset));
    if (got < 0) {
      if (errno == EINTR) {
        continue;
      }
      throw_system_error("cannot read", path);
    }
    if (got == 0) {
      throw Error(ErrorKind::kFormat, "the file ends at byte " + std::to_string(offset) + ", more was expected", path);
    }
    next += got;
    offset += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
}

void sync_folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, std::max<std::size_t>(slash, 1));
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) {
    throw_system_error("cannot open the folder to make the file durable", folder);
  }
  const int failed = ::fsync(descriptor);
  const int code = errno;
  ::close(descriptor);
  if (failed != 0 && code != EINVAL) {  // EINVAL: this file system cannot, and need not, sync folders
    errno = code;
    throw_system_error("cannot make the file durable", folder);
  }
}

void start_writeback(int descriptor, std::uint64_t offset, std::size_t bytes) {
#if defined(__linux__) && defined(SYNC_FILE_RANGE_WRITE)
  ::sync_file_range(descriptor, static_cast<off_t>(offset), static_cast<off_t>(bytes), SYNC_FILE_RANGE_WRITE);
#else
  static_cast<void>(descriptor), static_cast<void>(offset), static_cast<void>(bytes);
#endif
}

AtomicFileWriter::AtomicFileWriter(std::string path)
    : path_(std::move(path)), temporary_(path_ + ".tmp-" + std::to_string(::getpid())) {
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor_ < 0) {
    throw_system_error("cannot create the file", temporary_);
  }
}

AtomicFileWriter::~AtomicFileWriter() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
    ::unlink(temporary_.c_str());
  }
}

void AtomicFileWriter::write(const void* data, std::size_t bytes) {
  const auto* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(descriptor_, next, std::min(bytes, kLargestTransferBytes));
    if (written < 0) {
      if (errno == EINTR) {
        continue;
      }
      throw_system_error("cannot write", temporary_);
    }
    next += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

void AtomicFileWriter::commit() {
  if (::fsync(descriptor_) != 0) {
    throw_system_error("cannot make the file durable", temporary_);
  }
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    throw_system_error("cannot move the file into place", path_);
  }
  ::close(descriptor_);
  descriptor_ = -1;
  sync_folder_of(path_);
}

FileReader::FileReader(std::string path) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) {
    throw_system_error("cannot open the file", path_);
  }
  struct stat status{};
  if (::fstat(descriptor_, &status) != 0) {
    ::close(descriptor_);
    throw_system_error("cannot read the size of the file", path_);
  }
  bytes_ = static_cast<std::uint64_t>(status.st_size);
}

FileReader::~FileReader() { ::close(descriptor_); }

void FileReader::read(void* data, std::size_t bytes, std::uint64_t offset) const {
  read_fully(descriptor_, data, bytes, offset, path_);
}

}  // namespace graphbox
