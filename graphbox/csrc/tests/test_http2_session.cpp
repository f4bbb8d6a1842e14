// The peer is a client session of libnghttp2.
#include "serve/http2_session.h"

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/check.h"

namespace graphbox::serve {
namespace {

using Headers = std::vector<std::pair<std::string, std::string>>;

const std::string kInfer = "/inference.GRPCInferenceService/ModelInfer";
const std::string kStream = "/inference.GRPCInferenceService/ModelStreamInfer";

struct Answer {
  std::map<std::string, std::string> headers;
  std::string data;
  bool closed = false;
  std::uint32_t error_code = 0;
};

struct Body {
  std::string bytes;
  std::size_t sent = 0;
  bool ends = true;
};

class Client {
 public:
  explicit Client(std::int32_t window_bytes = 0) {
    nghttp2_session_callbacks* callbacks = nullptr;
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(
        callbacks, [](nghttp2_session*, const nghttp2_frame* frame, const std::uint8_t* name, std::size_t name_size,
                      const std::uint8_t* value, std::size_t value_size, std::uint8_t, void* self) {
          static_cast<Client*>(self)->answers[frame->hd.stream_id].headers[std::string(
              reinterpret_cast<const char*>(name), name_size)] =
              std::string(reinterpret_cast<const char*>(value), value_size);
          return 0;
        });
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
        callbacks, [](nghttp2_session*, std::uint8_t, std::int32_t stream, const std::uint8_t* data, std::size_t size,
                      void* self) {
          static_cast<Client*>(self)->answers[stream].data.append(reinterpret_cast<const char*>(data), size);
          return 0;
        });
    nghttp2_session_callbacks_set_on_stream_close_callback(
        callbacks, [](nghttp2_session*, std::int32_t stream, std::uint32_t error_code, void* self) {
          Answer& answer = static_cast<Client*>(self)->answers[stream];
          answer.closed = true;
          answer.error_code = error_code;
          return 0;
        });
    nghttp2_session_callbacks_set_on_frame_recv_callback(
        callbacks, [](nghttp2_session*, const nghttp2_frame* frame, void* self) {
          if (frame->hd.type == NGHTTP2_GOAWAY) {
            static_cast<Client*>(self)->goaway = frame->goaway.error_code;
          }
          return 0;
        });
    nghttp2_option* option = nullptr;
    nghttp2_option_new(&option);
    nghttp2_option_set_max_send_header_block_length(option, 1 << 20);
    nghttp2_session_client_new2(&session_, callbacks, this, option);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, static_cast<std::uint32_t>(window_bytes)}};
    nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings, window_bytes > 0 ? 1 : 0);
  }
  ~Client() { nghttp2_session_del(session_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  std::int32_t call(const std::string& path, const std::string& body, bool ends = true, Headers more = {},
                    const std::string& method = "POST", const std::string& content_type = "application/grpc") {
    Headers all = {{":method", method}, {":scheme", "http"},           {":path", path},
                   {":authority", "x"}, {"content-type", content_type}, {"te", "trailers"}};
    all.insert(all.end(), more.begin(), more.end());
    std::vector<nghttp2_nv> fields;
    for (auto& [name, value] : all) {
      fields.push_back({reinterpret_cast<std::uint8_t*>(name.data()), reinterpret_cast<std::uint8_t*>(value.data()),
                        name.size(), value.size(), NGHTTP2_NV_FLAG_NONE});
    }
    nghttp2_data_provider provider = {};
    provider.read_callback = [](nghttp2_session*, std::int32_t stream, std::uint8_t* buffer, std::size_t length,
                                std::uint32_t* flags, nghttp2_data_source* source, void*) -> ssize_t {
      Body& sending = (*static_cast<std::map<std::int32_t, Body>*>(source->ptr))[stream];
      const std::size_t count = std::min(length, sending.bytes.size() - sending.sent);
      std::copy_n(sending.bytes.data() + sending.sent, count, buffer);
      sending.sent += count;
      if (sending.sent == sending.bytes.size() && sending.ends) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
      } else if (count == 0) {
        return NGHTTP2_ERR_DEFERRED;
      }
      return static_cast<ssize_t>(count);
    };
    provider.source.ptr = &bodies_;
    const std::int32_t stream =
        nghttp2_submit_request(session_, nullptr, fields.data(), fields.size(), &provider, nullptr);
    bodies_[stream] = {body, 0, ends};
    return stream;
  }

  void more(std::int32_t stream, const std::string& bytes, bool ends) {
    bodies_[stream].bytes += bytes;
    bodies_[stream].ends = ends;
    nghttp2_session_resume_data(session_, stream);
  }

  void reset(std::int32_t stream) {
    nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, stream, NGHTTP2_CANCEL);
  }
  void ping() { nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, nullptr); }

  std::string output() {
    std::string all;
    const std::uint8_t* data = nullptr;
    for (ssize_t size; (size = nghttp2_session_mem_send(session_, &data)) > 0;) {
      all.append(reinterpret_cast<const char*>(data), static_cast<std::size_t>(size));
    }
    return all;
  }

  // Exchange bytes with the server until neither has any; returns the server's events.
  std::vector<Event> exchange(Http2Session& server, std::size_t step = 1 << 20) {
    std::vector<Event> events;
    for (bool moved = true; moved;) {
      moved = false;
      const std::string sent = output();
      for (std::size_t offset = 0; offset < sent.size(); offset += step) {
        moved = true;
        for (Event& event : server.receive(std::string_view(sent).substr(offset, step))) {
          events.push_back(std::move(event));
        }
      }
      for (std::string answer; !(answer = server.output(1 << 16)).empty();) {
        moved = true;
        nghttp2_session_mem_recv(session_, reinterpret_cast<const std::uint8_t*>(answer.data()), answer.size());
      }
    }
    return events;
  }

  std::map<std::int32_t, Answer> answers;
  int goaway = -1;

 private:
  nghttp2_session* session_ = nullptr;
  std::map<std::int32_t, Body> bodies_;
};

std::string framed(const std::string& message) { return message_prefix(message.size(), false) + message; }

Http2Session make_server(const SessionLimits& limits = {}, bool announce_calls = false) {
  return Http2Session(limits, {kStream}, {kInfer}, announce_calls);
}

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

TEST(http2_session, requests_that_are_not_calls_are_refused) {
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

TEST(http2_session, limits_of_messages) {
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
  // What the refused call held is free again.
  client.more(first, std::string(55, 'x'), true);
  CHECK_EQUAL(client.exchange(server).size(), std::size_t{1});
  const std::int32_t third = client.call(kInfer, framed(std::string(999, 'x')));
  CHECK_EQUAL(client.exchange(server).size(), std::size_t{1});
  server.finish(third, 0);
}

TEST(http2_session, messages_of_other_paths_are_small) {
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

TEST(http2_session, limits_of_headers) {
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

TEST(http2_session, concurrent_calls_are_limited) {
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

TEST(http2_session, rapid_resets_and_control_floods_end_the_connection) {
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

TEST(http2_session, calls_are_announced_and_refused_before_their_message) {
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

TEST(http2_session, refused_calls_are_not_run_when_their_message_comes) {
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

TEST(http2_session, stalled_messages_are_refused) {
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

TEST(http2_session, other_protocols_end_the_connection) {
  Http2Session server = make_server();
  CHECK(server.receive("GET / HTTP/1.1\r\nHost: x\r\n\r\n").empty());
  CHECK(!server.failure().empty());
  CHECK(!server.output(1 << 16).empty());
  CHECK(server.is_finished());
  CHECK(server.receive("more").empty());
}

// Random changes of a recorded conversation: nothing but calls, statuses or the end of the connection may follow.
TEST(http2_session, mutated_frames) {
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
