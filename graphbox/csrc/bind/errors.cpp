// Native errors become the exceptions of graphbox.errors.
#include "errors/error.h"

#include <nanobind/nanobind.h>

#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

#include "bind/nouns.h"

namespace graphbox::bind {
namespace nb = nanobind;
namespace {

const char* class_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUsage:
      return "UsageError";
    case ErrorKind::kData:
      return "DataError";
    case ErrorKind::kFormat:
      return "FormatError";
    case ErrorKind::kNotFound:
      return "NotFoundError";
    case ErrorKind::kDoesNotFit:
      return "DoesNotFitError";
    case ErrorKind::kFailure:
      break;
  }
  return "GraphboxError";
}

nb::object text_or_none(const std::string& text) {
  return text.empty() ? nb::none() : nb::object(nb::str(text.c_str(), text.size()));
}

void raise(const Error& error) {
  const nb::object type = nb::module_::import_("graphbox.errors").attr(class_name(error.kind()));
  const nb::object instance =
      type(error.what(), nb::arg("where") = text_or_none(error.where()), nb::arg("hint") = text_or_none(error.hint()));
  PyErr_SetObject(type.ptr(), instance.ptr());
}

void translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const Error& error) {
    raise(error);
  } catch (const std::system_error& error) {
    raise(Error(ErrorKind::kFailure, std::string("the system refused what was asked of it: ") + error.what(), {},
                "free memory or let the process have more threads, and try again"));
  } catch (const std::length_error&) {
    raise(Error(ErrorKind::kDoesNotFit, "more entries were asked for than memory can have", {}, "give smaller numbers"));
  } catch (const std::bad_alloc&) {
    raise(Error(ErrorKind::kDoesNotFit, "the system has no more memory to give", {},
                "use smaller batches, fewer neighbours or a smaller table"));
  }
}

}  // namespace

void add_errors(nb::module_&) { nb::register_exception_translator(translate); }

}  // namespace graphbox::bind
