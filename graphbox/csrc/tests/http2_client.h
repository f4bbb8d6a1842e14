// The peer of HTTP/2 sessions in tests: a client session of libnghttp2.
#pragma once

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "serve/http2_session.h"
#include "tests/check.h"

namespace graphbox::serve {

using Headers = std::vector<std::pair<std::string, std::string>>;

inline const std::string kInfer = "/inference.GRPCInferenceService/ModelInfer";
inline const std::string kStream = "/inference.GRPCInferenceService/ModelStreamInfer";

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

inline std::string framed(const std::string& message) { return message_prefix(message.size(), false) + message; }

inline Http2Session make_server(const SessionLimits& limits = {}, bool announce_calls = false) {
  return Http2Session(limits, {kStream}, {kInfer}, announce_calls);
}

}  // namespace graphbox::serve
