// Limits of a session: frames that are too many, out of order or malformed.
#include "serve/http2_session.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tests/check.h"
#include "tests/http2_client.h"

namespace graphbox::serve {
namespace {

TEST(http2_limits, requests_that_are_not_calls_are_refused) {
  Http2Session server = make_server();
  Client client;
  const std::int32_t get = client.call(kInfer, "", true, {}, "GET");
  const std::int32_t json = client.call(kInfer, "{}", true, {}, "POST", "application/json");
  const std::int32_t grpc_json = client.call(kInfer, framed("{}"), true, {}, "POST", "application/grpc+json");
  const std::int32_t timeout = client.call(kInfer, framed("x"), true, {{"grpc-timeout", "soon"}});
  const std::int32_t none = client.call(kInfer, "");
  const std::int32_t two = client.call(kInfer, framed("x") + framed("y"));
  const std::int32_t half = client.call(kInfer, framed("xyz").substr(0, 7));
  const std::int32_t flag = client.call(kInfer, std::string("\7\0\0\0\1x", 6));
  const std::vector<Event> events = client.exchange(server);
  CHECK_EQUAL(events.size(), std::size_t{5});  // those without a status of gRPC are not reported
  CHECK(std::all_of(events.begin(), events.end(), [](const Event& event) {
    return event.kind == EventKind::kRefused && event.path == kInfer && event.status > 0;
  }));
  CHECK_EQUAL(events[0].stream, timeout);
  CHECK_EQUAL(events[0].status, 3);
  CHECK(client.answers[get].headers.at(":status") == "405");
  CHECK(client.answers[json].headers.at(":status") == "415");
  CHECK(client.answers[grpc_json].headers.at(":status") == "415");
  CHECK(client.answers[timeout].headers.at("grpc-status") == "3");
  CHECK(client.answers[none].headers.at("grpc-status") == "12");
  CHECK(client.answers[two].headers.at("grpc-status") == "12");
  CHECK(client.answers[half].headers.at("grpc-status") == "13");
  CHECK(client.answers[flag].headers.at("grpc-status") == "13");
  CHECK_EQUAL(server.open_calls(), std::size_t{0});
}

TEST(http2_limits, limits_of_messages) {
  SessionLimits limits;
  limits.max_message_bytes = 1000;
  limits.max_buffered_bytes = 1500;
  Http2Session server = make_server(limits);
  Client client;
  const std::int32_t large = client.call(kInfer, framed(std::string(1001, 'x')), false);
  const std::int32_t first = client.call(kInfer, framed(std::string(900, 'x')).substr(0, 850), false);
  client.exchange(server);
  CHECK(client.answers[large].headers.at("grpc-status") == "8");
  CHECK(client.answers[large].closed);
  CHECK(!client.answers[first].closed);
  const std::int32_t second = client.call(kInfer, framed(std::string(900, 'x')).substr(0, 850), false);
  client.exchange(server);
  CHECK(client.answers[second].headers.at("grpc-status") == "8");
  // The memory of the refused call is free again.
  client.more(first, std::string(55, 'x'), true);
  CHECK_EQUAL(client.exchange(server).size(), std::size_t{1});
  const std::int32_t third = client.call(kInfer, framed(std::string(999, 'x')));
  CHECK_EQUAL(client.exchange(server).size(), std::size_t{1});
  server.finish(third, 0);
}

TEST(http2_limits, messages_of_other_paths_are_small) {
  SessionLimits limits;
  limits.max_message_bytes = 1000;
  limits.max_small_message_bytes = 100;
  for (const bool announce_calls : {false, true}) {
    Http2Session server = make_server(limits, announce_calls);
    Client client;
    const std::int32_t large = client.call("/grpc.health.v1.Health/Check", framed(std::string(101, 'x')));
    const std::int32_t small = client.call("/grpc.health.v1.Health/Check", framed(std::string(100, 'x')));
    const std::int32_t infer = client.call(kInfer, framed(std::string(1000, 'x')));
    const std::int32_t stream = client.call(kStream, framed(std::string(1000, 'x')));
    client.exchange(server);
    CHECK(client.answers[large].headers.at("grpc-status") == "8");
    CHECK(client.answers[large].headers.at("grpc-message") ==
          "expected a message of at most 100 bytes, received one of 101");
    for (const std::int32_t taken : {small, infer, stream}) {
      CHECK(!client.answers[taken].closed);
    }
  }
}

TEST(http2_limits, limits_of_headers) {
  Http2Session server = make_server();
  Client client;
  const std::int32_t stream = client.call(kInfer, framed("x"), true, {{"x-large", std::string(20'000, 'v')}});
  CHECK(client.exchange(server).at(0).kind == EventKind::kRefused);
  CHECK(client.answers[stream].headers.at("grpc-status") == "8");
  CHECK(server.failure().empty());
  // A reference to a stored header costs a byte: an answer is no reason to read millions of them.
  Headers many;
  for (int i = 0; i < 4000; ++i) {
    many.emplace_back("x-many", "the same value each time");
  }
  client.call(kInfer, framed("x"), true, many);
  client.exchange(server);
  CHECK(!server.failure().empty());
  CHECK_EQUAL(client.goaway, static_cast<int>(NGHTTP2_ENHANCE_YOUR_CALM));
  CHECK(server.is_finished());
}

TEST(http2_limits, concurrent_calls_are_limited) {
  SessionLimits limits;
  limits.max_concurrent_streams = 3;
  Http2Session server = make_server(limits);
  Client client;
  client.exchange(server);
  for (int i = 0; i < 10; ++i) {
    client.call(kInfer, framed("x"));
  }
  CHECK_EQUAL(client.exchange(server).size(), std::size_t{3});
  CHECK_EQUAL(server.open_calls(), std::size_t{3});
}

TEST(http2_limits, rapid_resets_and_control_floods_end_the_connection) {
  Http2Session server = make_server();
  Client client;
  for (int i = 0; i < 3000 && server.failure().empty(); ++i) {
    const std::int32_t stream = client.call(kInfer, framed("x"));
    client.exchange(server);
    client.reset(stream);
    client.exchange(server);
  }
  CHECK_EQUAL(client.goaway, static_cast<int>(NGHTTP2_ENHANCE_YOUR_CALM));
  CHECK(server.is_finished());

  Http2Session pinged = make_server();
  Client pinging;
  for (int i = 0; i < 5000 && pinged.failure().empty(); ++i) {
    pinging.ping();
    pinging.exchange(pinged);
  }
  CHECK_EQUAL(pinging.goaway, static_cast<int>(NGHTTP2_ENHANCE_YOUR_CALM));

  // A client that reads no acknowledgements.
  Http2Session unread = make_server();
  Client silent;
  for (int i = 0; i < 5000 && unread.failure().empty(); ++i) {
    silent.ping();
    unread.receive(silent.output());
  }
  CHECK(!unread.failure().empty());
}

TEST(http2_limits, calls_are_announced_and_refused_before_their_message) {
  Http2Session server = make_server({}, true);
  Client client;
  const std::int32_t stream = client.call(kInfer, message_prefix(1000, false) + "x", false);
  std::vector<Event> events = client.exchange(server);
  CHECK_EQUAL(events.size(), std::size_t{1});
  CHECK(events[0].kind == EventKind::kOpened);
  server.finish(stream, 16, "token");
  events = client.exchange(server);
  CHECK(events.empty());
  CHECK(client.answers[stream].headers.at("grpc-status") == "16");
  CHECK(client.answers[stream].closed);
}

TEST(http2_limits, refused_calls_are_not_run_when_their_message_comes) {
  Http2Session server = make_server({}, true);
  Client client;
  const std::int32_t stream = client.call(kInfer, message_prefix(3, false) + "x", false);
  client.exchange(server);
  server.finish(stream, 16, "token");  // not sent yet
  CHECK_EQUAL(server.buffered_bytes(), std::size_t{0});
  client.more(stream, "yz", true);
  CHECK(server.receive(client.output()).empty());
  client.exchange(server);
  CHECK(client.answers[stream].headers.at("grpc-status") == "16");
}

TEST(http2_limits, stalled_messages_are_refused) {
  Http2Session server = make_server();
  Client client;
  const std::int32_t stalled = client.call(kInfer, framed("xyz").substr(0, 6), false);
  const std::int32_t idle = client.call(kStream, framed("xyz"), false);
  client.exchange(server);
  CHECK(server.refuse_incomplete(3'600'000'000'000, 4, "late").empty());
  const std::vector<Event> refused = server.refuse_incomplete(0, 4, "late");
  CHECK_EQUAL(refused.size(), std::size_t{1});
  CHECK(refused[0].kind == EventKind::kRefused);
  CHECK_EQUAL(refused[0].stream, stalled);
  CHECK_EQUAL(refused[0].status, 4);
  client.exchange(server);
  CHECK(client.answers[stalled].headers.at("grpc-status") == "4");
  CHECK(!client.answers[idle].closed);
  client.more(idle, "\0", false);
  client.exchange(server);
}

TEST(http2_limits, other_protocols_end_the_connection) {
  Http2Session server = make_server();
  CHECK(server.receive("GET / HTTP/1.1\r\nHost: x\r\n\r\n").empty());
  CHECK(!server.failure().empty());
  CHECK(!server.output(1 << 16).empty());
  CHECK(server.is_finished());
  CHECK(server.receive("more").empty());
}

// Random changes of a recorded conversation: nothing but calls, statuses or the end of the connection may follow.
TEST(http2_limits, mutated_frames) {
  Client recorder;
  std::string conversation;
  for (int i = 0; i < 4; ++i) {
    recorder.call(i % 2 == 0 ? kInfer : kStream, framed(std::string(300, 'x')) + framed("y"), true,
                  {{"grpc-timeout", "1S"}, {"authorization", "Bearer x"}});
    recorder.ping();
    conversation += recorder.output();
  }
  recorder.reset(1);
  conversation += recorder.output();
  std::mt19937 random(7);
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = conversation;
    const int changes = 1 + static_cast<int>(random() % 4);
    for (int i = 0; i < changes; ++i) {
      // The connection preface, 24 bytes, is left alone: no frame is read after a broken one.
      const std::size_t place = 24 + random() % (bytes.size() - 24);
      switch (random() % 3) {
        case 0:
          bytes[place] = static_cast<char>(random());
          break;
        case 1:
          bytes.erase(place, 1 + random() % 20);
          break;
        default:
          bytes.insert(place, 1 + random() % 9, static_cast<char>(random()));
      }
      bytes.append(40, '\0');
    }
    SessionLimits limits;
    limits.max_message_bytes = 4096;
    Http2Session server = make_server(limits, round % 2 == 0);
    const std::size_t step = 1 + random() % bytes.size();
    for (std::size_t offset = 0; offset < bytes.size(); offset += step) {
      for (const Event& event : server.receive(std::string_view(bytes).substr(offset, step))) {
        CHECK(event.stream > 0);
        if (event.kind == EventKind::kCall || event.kind == EventKind::kMessage) {
          server.send(event.stream, event.message.bytes);
        }
        if (event.kind == EventKind::kCall || event.kind == EventKind::kHalfClosed) {
          server.finish(event.stream, 0);
        }
      }
      server.output(1 << 16);
    }
    CHECK(server.open_calls() <= limits.max_concurrent_streams);
  }
}

}  // namespace
}  // namespace graphbox::serve
