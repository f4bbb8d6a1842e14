// The Python module `_http2`: server side of HTTP/2 connections that carry gRPC calls. A module of its own, so that the
// server loads no more than this of the native core.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <string_view>

#include "serve/http2_session.h"

namespace graphbox::bind {
namespace nb = nanobind;
using serve::Event;
using serve::EventKind;
using serve::Http2Session;
using serve::SessionLimits;

namespace {

std::string_view view_of(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

nb::bytes bytes_of(std::string_view text) { return nb::bytes(text.data(), text.size()); }

nb::object timeout_of(const Event& event) {
  return event.timeout_ns < 0 ? nb::none() : nb::object(nb::int_(event.timeout_ns));
}

// The path is latin-1, as any byte may be in it.
nb::object path_of(const Event& event) {
  return nb::steal(PyUnicode_DecodeLatin1(event.path.data(), static_cast<Py_ssize_t>(event.path.size()), nullptr));
}

nb::tuple tuple_of(const Event& event) {
  const int kind = static_cast<int>(event.kind);
  switch (event.kind) {
    case EventKind::kOpened:
      return nb::make_tuple(kind, event.stream, path_of(event), timeout_of(event));
    case EventKind::kMessage:
      return nb::make_tuple(kind, event.stream, bytes_of(event.message.bytes), event.message.compressed);
    case EventKind::kCall:
      return nb::make_tuple(kind, event.stream, path_of(event), timeout_of(event), bytes_of(event.message.bytes),
                            event.message.compressed);
    case EventKind::kRefused:
      return nb::make_tuple(kind, event.stream, path_of(event), event.status);
    case EventKind::kHalfClosed:
    case EventKind::kClosed:
      break;
  }
  return nb::make_tuple(kind, event.stream);
}

nb::list list_of(const std::vector<Event>& events) {
  nb::list result;
  for (const Event& event : events) {
    result.append(tuple_of(event));
  }
  return result;
}

}  // namespace

NB_MODULE(_http2, module) {
  module.doc() = "Server side of HTTP/2 connections that carry gRPC calls.";
  nb::set_leak_warnings(false);
  module.attr("OPENED") = static_cast<int>(EventKind::kOpened);
  module.attr("MESSAGE") = static_cast<int>(EventKind::kMessage);
  module.attr("CALL") = static_cast<int>(EventKind::kCall);
  module.attr("HALF_CLOSED") = static_cast<int>(EventKind::kHalfClosed);
  module.attr("CLOSED") = static_cast<int>(EventKind::kClosed);
  module.attr("REFUSED") = static_cast<int>(EventKind::kRefused);

  nb::class_<Http2Session>(module, "Http2Session")
      .def(
          "__init__",
          [](Http2Session* self, std::vector<std::string> streaming_paths, std::vector<std::string> large_paths,
             bool announce_calls, std::uint32_t max_concurrent_calls, std::size_t max_header_bytes,
             std::size_t max_message_bytes, std::size_t max_small_message_bytes, std::size_t max_buffered_bytes) {
            SessionLimits limits;
            limits.max_concurrent_streams = max_concurrent_calls;
            limits.max_header_bytes = max_header_bytes;
            limits.max_message_bytes = max_message_bytes;
            limits.max_small_message_bytes = max_small_message_bytes;
            limits.max_buffered_bytes = max_buffered_bytes;
            new (self) Http2Session(limits, std::move(streaming_paths), std::move(large_paths), announce_calls);
          },
          nb::kw_only(), nb::arg("streaming_paths"), nb::arg("large_paths"), nb::arg("announce_calls"),
          nb::arg("max_concurrent_calls"), nb::arg("max_header_bytes"), nb::arg("max_message_bytes"),
          nb::arg("max_small_message_bytes"), nb::arg("max_buffered_bytes"))
      .def(
          "receive", [](Http2Session& self, const nb::bytes& data) { return list_of(self.receive(view_of(data))); },
          nb::arg("data"))
      .def(
          "output", [](Http2Session& self, std::size_t max_bytes) { return bytes_of(self.output(max_bytes)); },
          nb::arg("max_bytes"))
      .def(
          "header",
          [](const Http2Session& self, std::int32_t stream, std::string_view name) {
            return bytes_of(self.header(stream, name));
          },
          nb::arg("stream"), nb::arg("name"))
      .def(
          "answer",
          [](Http2Session& self, std::int32_t stream, const nb::bytes& message, std::string_view encoding) {
            self.send(stream, view_of(message), !encoding.empty(), encoding);
            self.finish(stream, 0);
          },
          nb::arg("stream"), nb::arg("message"), nb::arg("encoding") = "")
      .def(
          "send",
          [](Http2Session& self, std::int32_t stream, const nb::bytes& message) {
            self.send(stream, view_of(message));
          },
          nb::arg("stream"), nb::arg("message"))
      .def("finish", &Http2Session::finish, nb::arg("stream"), nb::arg("status"), nb::arg("text") = "")
      .def(
          "processed",
          [](Http2Session& self, std::int32_t stream, std::size_t message_bytes) {
            return list_of(self.processed(stream, message_bytes));
          },
          nb::arg("stream"), nb::arg("message_bytes"))
      .def(
          "refuse_incomplete",
          [](Http2Session& self, std::int64_t stalled_ns, int status, std::string_view text) {
            return list_of(self.refuse_incomplete(stalled_ns, status, text));
          },
          nb::arg("stalled_ns"), nb::arg("status"), nb::arg("text"))
      .def("shut_down", &Http2Session::shut_down, nb::arg("last"))
      .def("ping", &Http2Session::ping)
      .def_prop_ro("buffered_bytes", &Http2Session::buffered_bytes)
      .def_prop_ro("queued_bytes", &Http2Session::queued_bytes)
      .def_prop_ro("sent_bytes", &Http2Session::sent_bytes)
      .def_prop_ro("open_calls", &Http2Session::open_calls)
      .def_prop_ro("is_finished", &Http2Session::is_finished)
      .def_prop_ro("failure", &Http2Session::failure);
}

}  // namespace graphbox::bind
