// Lets other Python threads run as long as it lives.
//
// For nb::gil_scoped_release, whose destructor ends the process if the interpreter has ended meanwhile: Python before
// 3.14 then ends the threads that come back to it (daemons) by unwinding their stacks, which a destructor forbids.
// Here such a thread waits for the end of the process, as it does from Python 3.14 on.
#pragma once

#include <Python.h>
#include <unistd.h>

namespace graphbox {

class ReleasedGil {
 public:
  ReleasedGil() : thread_(PyEval_SaveThread()) {}
  ReleasedGil(const ReleasedGil&) = delete;
  ReleasedGil& operator=(const ReleasedGil&) = delete;
  ~ReleasedGil() {
    try {
      PyEval_RestoreThread(thread_);
    } catch (...) {  // no exception, the end of the thread: leaving here would end the process
      for (;;) {
        ::pause();
      }
    }
  }

 private:
  PyThreadState* thread_;
};

}  // namespace graphbox
