// Reads in flight through io_uring.
#include "io/read_queue.h"

#if defined(GRAPHBOX_LIBURING)
#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "errors/error.h"
#endif

namespace graphbox {

#if defined(GRAPHBOX_LIBURING)
namespace {

class UringQueue : public ReadQueue {
 public:
  explicit UringQueue(unsigned depth) : most_unsubmitted_(std::max(depth / 8, 1U)) {
    int code = -EINVAL;
#if defined(IORING_SETUP_COOP_TASKRUN)
    code = ::io_uring_queue_init(depth, &ring_, IORING_SETUP_COOP_TASKRUN);  // fewer interrupts; Linux 5.19
#endif
    if (code == -EINVAL) {
      code = ::io_uring_queue_init(depth, &ring_, 0);
    }
    if (code < 0) {
      throw std::system_error(-code, std::generic_category());
    }
  }
  UringQueue(const UringQueue&) = delete;
  UringQueue& operator=(const UringQueue&) = delete;
  ~UringQueue() override { ::io_uring_queue_exit(&ring_); }

  void push(const ReadRequest& request) override {
    io_uring_sqe* const entry = ::io_uring_get_sqe(&ring_);
    ::io_uring_prep_read(entry, request.descriptor, request.target, request.bytes, request.offset);
    entry->user_data = request.tag;
    // A few at a time: the disk starts while the caller goes on, and a system call serves several.
    if (++unsubmitted_ >= most_unsubmitted_) {
      const int code = ::io_uring_submit(&ring_);  // where it fails, wait() tries again and says so
      unsubmitted_ -= std::min(unsubmitted_, static_cast<unsigned>(std::max(code, 0)));
    }
  }

  ReadResult wait() override {
    io_uring_cqe* entry = nullptr;
    while (::io_uring_peek_cqe(&ring_, &entry) != 0) {
      submit_and_wait();
    }
    const ReadResult result{entry->user_data, entry->res};
    ::io_uring_cqe_seen(&ring_, entry);
    return result;
  }

 private:
  void submit_and_wait() {
    const int code = ::io_uring_submit_and_wait(&ring_, 1);
    if (code >= 0) {
      unsubmitted_ -= std::min(unsubmitted_, static_cast<unsigned>(code));
    } else if (code != -EINTR && code != -EAGAIN && code != -EBUSY) {
      throw Error(ErrorKind::kFailure, "io_uring failed: " + std::generic_category().message(-code));
    }
  }

  io_uring ring_{};
  unsigned most_unsubmitted_;
  unsigned unsubmitted_ = 0;
};

}  // namespace

std::unique_ptr<ReadQueue> open_uring_queue(unsigned depth, std::string& refusal) {
  try {
    return std::make_unique<UringQueue>(depth);
  } catch (const std::system_error& error) {
    refusal = "the kernel refuses it: " + error.code().message();
    return nullptr;
  }
}

#else

std::unique_ptr<ReadQueue> open_uring_queue(unsigned, std::string& refusal) {
  refusal = "built without liburing";
  return nullptr;
}

#endif

}  // namespace graphbox
