// Calls and their messages.
#include "serve/http2_session.h"

#include <algorithm>
#include <string>
#include <vector>

#include "tests/check.h"
#include "tests/http2_client.h"

namespace graphbox::serve {
namespace {

TEST(http2_session, unary_call) {
  for (const std::size_t step : {std::size_t{1}, std::size_t{7}, std::size_t{1} << 20}) {
    Http2Session server = make_server();
    Client client;
    const std::int32_t stream = client.call(kInfer, framed("question"), true, {{"grpc-timeout", "5S"}, {"x-a", "b"}});
    const std::vector<Event> events = client.exchange(server, step);
    CHECK_EQUAL(events.size(), std::size_t{1});
    CHECK(events[0].kind == EventKind::kCall);
    CHECK(events[0].path == kInfer);
    CHECK(events[0].message.bytes == "question");
    CHECK_EQUAL(events[0].timeout_ns, 5'000'000'000);
    CHECK(server.header(stream, "x-a") == "b");
    CHECK(server.header(stream, "none").empty());
    server.send(stream, "answer");
    server.finish(stream, 0);
    client.exchange(server, step);
    const Answer& answer = client.answers[stream];
    CHECK(answer.closed);
    CHECK(answer.data == framed("answer"));
    CHECK(answer.headers.at(":status") == "200");
    CHECK(answer.headers.at("grpc-status") == "0");
    CHECK_EQUAL(server.open_calls(), std::size_t{0});
    CHECK_EQUAL(server.queued_bytes(), std::size_t{0});
  }
}

TEST(http2_session, errors_are_trailers_alone) {
  Http2Session server = make_server();
  Client client;
  const std::int32_t stream = client.call(kInfer, framed("x"));
  client.exchange(server);
  server.finish(stream, 5, "no such\nmodel");
  server.finish(stream, 0);           // ignored, as the answer has ended
  server.send(stream, "too late");
  client.exchange(server);
  CHECK(client.answers[stream].headers.at("grpc-status") == "5");
  CHECK(client.answers[stream].headers.at("grpc-message") == "no such%0Amodel");
  CHECK(client.answers[stream].data.empty());
}

TEST(http2_session, streaming_call_both_ways) {
  Http2Session server = make_server();
  Client client;
  const std::int32_t stream = client.call(kStream, framed("one"), false);
  std::vector<Event> events = client.exchange(server);
  CHECK_EQUAL(events.size(), std::size_t{2});
  CHECK(events[0].kind == EventKind::kOpened);
  CHECK(events[1].kind == EventKind::kMessage);
  server.send(stream, "a");
  client.exchange(server);
  CHECK(client.answers[stream].data == framed("a"));
  client.more(stream, framed("two") + framed("three"), true);
  events = client.exchange(server);
  CHECK_EQUAL(events.size(), std::size_t{3});
  CHECK(events[1].message.bytes == "three");
  CHECK(events[2].kind == EventKind::kHalfClosed);
  server.send(stream, "b");
  server.finish(stream, 0);
  client.exchange(server);
  CHECK(client.answers[stream].data == framed("a") + framed("b"));
  CHECK(client.answers[stream].closed);
}

TEST(http2_session, large_messages_pass_flow_control) {
  Http2Session server = make_server();
  Client client(70'000);
  const std::string large(20'000'000, 'q');
  const std::int32_t stream = client.call(kInfer, framed(large));
  const std::vector<Event> events = client.exchange(server);
  CHECK(events.at(0).message.bytes == large);
  server.send(stream, large);
  server.finish(stream, 0);
  CHECK(server.queued_bytes() > large.size());
  // Without the client's windows no more than they allow comes out.
  std::size_t out = 0;
  Http2Session idle = make_server();
  Client unread(70'000);
  const std::int32_t other = unread.call(kInfer, framed("x"));
  unread.exchange(idle);
  idle.send(other, large);
  for (std::string piece; !(piece = idle.output(1 << 16)).empty();) {
    out += piece.size();
  }
  CHECK(out < 80'000);
  client.exchange(server);
  CHECK(client.answers[stream].data == framed(large));
}

// The first response ends where a frame does: the others follow it.
TEST(http2_session, responses_as_large_as_a_frame_are_all_sent) {
  for (const std::int32_t window : {0, 100, 16384, 70'000}) {
    for (const std::size_t frame : {100, 16384, 32768, 65535}) {
      for (std::size_t size = frame - 10; size < frame + 3; ++size) {
        Http2Session server = make_server();
        Client client(window);
        const std::int32_t stream = client.call(kStream, framed("x"));
        client.exchange(server);
        std::string expected;
        for (const std::size_t each : {size, std::size_t{20}, std::size_t{0}, size}) {
          server.send(stream, std::string(each, 'r'));
          expected += framed(std::string(each, 'r'));
        }
        server.finish(stream, 0);
        client.exchange(server);
        CHECK(client.answers[stream].data == expected);
        CHECK(client.answers[stream].headers.at("grpc-status") == "0");
        CHECK_EQUAL(server.queued_bytes(), std::size_t{0});
        CHECK_EQUAL(server.sent_bytes(), expected.size());
      }
    }
  }
}

// A stream that sends without reading is held back by its window; its messages are all read at last, in order.
TEST(http2_session, messages_beyond_those_pending_wait) {
  SessionLimits limits;
  limits.max_pending_messages = 4;
  for (const std::size_t step : {std::size_t{3}, std::size_t{1} << 20}) {
    Http2Session server = make_server(limits);
    Client client;
    std::string body;
    for (int i = 0; i < 20'000; ++i) {
      body += framed(std::to_string(i) + std::string(200, 'm'));
    }
    const std::int32_t stream = client.call(kStream, body);
    const std::int32_t other = client.call(kInfer, framed(std::string(3 << 20, 'o')));
    std::vector<Event> events = client.exchange(server, step);
    CHECK(std::any_of(events.begin(), events.end(),
                      [&](const Event& event) { return event.kind == EventKind::kCall && event.stream == other; }));
    CHECK_EQUAL(events.size(), std::size_t{6});
    CHECK(server.buffered_bytes() > 900'000);
    CHECK(server.buffered_bytes() < 1'100'000);
    std::size_t messages = 0;
    bool ended = false;
    while (!events.empty()) {
      std::vector<Event> next;
      for (const Event& event : events) {
        ended |= event.kind == EventKind::kHalfClosed;
        if (event.kind == EventKind::kMessage) {
          CHECK(!ended);
          CHECK(event.message.bytes == std::to_string(messages) + std::string(200, 'm'));
          ++messages;
          for (Event& further : server.processed(stream, event.message.bytes.size())) {
            next.push_back(std::move(further));
          }
        }
      }
      if (next.empty()) {
        next = client.exchange(server, step);
      }
      events = std::move(next);
    }
    CHECK_EQUAL(messages, std::size_t{20'000});
    CHECK(ended);
    CHECK_EQUAL(server.buffered_bytes(), std::size_t{0});
    CHECK(server.failure().empty());
  }
}

TEST(http2_session, pings_beside_calls_are_no_flood) {
  Http2Session server = make_server();
  Client client;
  for (int i = 0; i < 10'000; ++i) {
    const std::int32_t stream = client.call(kInfer, framed("x"));
    client.ping();
    client.exchange(server);
    server.send(stream, "y");
    server.finish(stream, 0);
    client.exchange(server);
  }
  CHECK(server.failure().empty());
}

TEST(http2_session, left_calls_are_reported_once) {
  Http2Session server = make_server();
  Client client;
  const std::int32_t whole = client.call(kInfer, framed("x"));
  const std::int32_t partial = client.call(kInfer, framed("x").substr(0, 2), false);
  client.exchange(server);
  client.reset(whole);
  client.reset(partial);
  const std::vector<Event> events = client.exchange(server);
  CHECK_EQUAL(events.size(), std::size_t{1});
  CHECK(events[0].kind == EventKind::kClosed);
  CHECK_EQUAL(events[0].stream, whole);
  server.send(whole, "nobody reads it");
  server.finish(whole, 0);
  CHECK_EQUAL(server.queued_bytes(), std::size_t{0});
}

TEST(http2_session, shut_down_completes_open_calls) {
  Http2Session server = make_server();
  Client client;
  const std::int32_t stream = client.call(kInfer, framed("x"));
  client.exchange(server);
  server.shut_down(false);
  client.exchange(server);
  CHECK_EQUAL(client.goaway, static_cast<int>(NGHTTP2_NO_ERROR));
  server.shut_down(true);
  client.exchange(server);
  CHECK(!server.is_finished());
  server.send(stream, "answer");
  server.finish(stream, 0);
  client.exchange(server);
  CHECK(client.answers[stream].data == framed("answer"));
  CHECK(server.is_finished());
}

}  // namespace
}  // namespace graphbox::serve
