#include "io/exchange.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "io/file.h"

namespace graphbox {

bool exchange_paths(const std::string& first, const std::string& second) {
#if defined(SYS_renameat2)
  constexpr unsigned kExchange = 2;  // RENAME_EXCHANGE, which not all headers have
  if (::syscall(SYS_renameat2, AT_FDCWD, first.c_str(), AT_FDCWD, second.c_str(), kExchange) == 0) {
    return true;
  }
  if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP) {
    throw_system_error("cannot take the place of another", second);
  }
#else
  static_cast<void>(first), static_cast<void>(second);
#endif
  return false;
}

}  // namespace graphbox
