// Answers of an HTTP/2 session: headers, messages, statuses and refusals.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>

#include "serve/http2_state.h"

namespace graphbox::serve {
namespace {

constexpr std::size_t kFrameHeaderBytes = 9;

nghttp2_nv header_of(std::string_view name, std::string_view value) {
  // nghttp2 copies both: no flags say that it need not.
  return {reinterpret_cast<std::uint8_t*>(const_cast<char*>(name.data())),
          reinterpret_cast<std::uint8_t*>(const_cast<char*>(value.data())), name.size(), value.size(),
          NGHTTP2_NV_FLAG_NONE};
}

}  // namespace

void Http2Session::State::refuse(std::int32_t stream, Call& call, Status status, std::string_view text) {
  finish(stream, static_cast<int>(status), text);
  events_.push_back(
      {.kind = EventKind::kRefused, .stream = stream, .path = call.path, .status = static_cast<int>(status)});
}

void Http2Session::State::ignore_rest(Call& call) {
  call.is_refused = true;
  call.reader = {};
  call.message = {};
  call.backlog = {};
  call.backlog_read = 0;
  call.pending_messages = call.pending_bytes = 0;
  count_buffered(call);
}

void Http2Session::State::refuse_http(std::int32_t stream, Call& call, std::string_view status) {
  call.is_refused = true;
  call.answer_begun = call.answer_ended = true;
  const nghttp2_nv headers[] = {header_of(":status", status)};
  nghttp2_submit_response(session_, stream, headers, std::size(headers), nullptr);
}

void Http2Session::State::begin_answer(std::int32_t stream, Call& call, std::string_view encoding) {
  call.answer_begun = true;
  nghttp2_nv headers[] = {header_of(":status", "200"), header_of("content-type", kContentType),
                          header_of("grpc-accept-encoding", "identity,deflate,gzip"),
                          header_of("grpc-encoding", encoding)};
  nghttp2_data_provider provider = {};
  provider.read_callback = [](nghttp2_session*, std::int32_t id, std::uint8_t*, std::size_t length,
                              std::uint32_t* flags, nghttp2_data_source*, void* state) {
    return static_cast<State*>(state)->read_answer(id, length, flags);
  };
  nghttp2_submit_response(session_, stream, headers, std::size(headers) - (encoding.empty() ? 1 : 0), &provider);
}

void Http2Session::State::send(std::int32_t stream, std::string_view message, bool compressed,
                               std::string_view encoding) {
  Call* call = find(stream);
  if (call == nullptr || call->answer_ended) {
    return;
  }
  if (message.size() > UINT32_MAX) {
    throw std::length_error("a message of gRPC has at most 2^32 - 1 bytes");
  }
  const std::string prefix = message_prefix(message.size(), compressed);
  std::string piece;
  piece.reserve(prefix.size() + message.size());
  piece.append(prefix).append(message);
  queued_bytes_ += piece.size();
  call->queue.push_back(std::move(piece));
  if (call->answer_begun) {
    nghttp2_session_resume_data(session_, stream);
  } else {
    begin_answer(stream, *call, encoding);
  }
}

void Http2Session::State::finish(std::int32_t stream, int status, std::string_view text) {
  Call* call = find(stream);
  if (call == nullptr || call->answer_ended) {
    return;
  }
  call->answer_ended = true;
  ignore_rest(*call);  // a refused call is not to be run when its message comes
  call->status = status;
  call->status_text = encode_status_message(text);
  if (call->answer_begun) {
    nghttp2_session_resume_data(session_, stream);
    return;
  }
  call->answer_begun = true;
  const std::string number = std::to_string(status);
  const nghttp2_nv headers[] = {header_of(":status", "200"), header_of("content-type", kContentType),
                                header_of("grpc-accept-encoding", "identity,deflate,gzip"),
                                header_of("grpc-status", number), header_of("grpc-message", call->status_text)};
  nghttp2_submit_response(session_, stream, headers, std::size(headers) - (text.empty() ? 1 : 0), nullptr);
}

void Http2Session::State::submit_trailers(std::int32_t stream, Call& call) {
  const std::string number = std::to_string(call.status);
  const nghttp2_nv trailers[] = {header_of("grpc-status", number), header_of("grpc-message", call.status_text)};
  nghttp2_submit_trailer(session_, stream, trailers, std::size(trailers) - (call.status_text.empty() ? 1 : 0));
}

ssize_t Http2Session::State::read_answer(std::int32_t stream, std::size_t length, std::uint32_t* flags) {
  Call* call = find(stream);
  if (call == nullptr) {
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  }
  std::size_t available = 0;
  for (const std::string& piece : call->queue) {
    available += piece.size();
    // Beyond `length`: at exactly that, whether a further piece follows decides about the end.
    if (available - call->sent_of_front > length) {
      break;
    }
  }
  available -= call->sent_of_front;
  if (available == 0 && !call->answer_ended) {
    return NGHTTP2_ERR_DEFERRED;
  }
  *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
  if (available <= length && call->answer_ended) {
    *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    submit_trailers(stream, *call);
  }
  return static_cast<ssize_t>(std::min(available, length));
}

int Http2Session::State::write_answer(std::int32_t stream, const std::uint8_t* frame_header, std::size_t length) {
  if (output_.size() >= output_limit_) {
    return NGHTTP2_ERR_WOULDBLOCK;
  }
  Call* call = find(stream);
  if (call == nullptr) {
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  }
  output_.append(reinterpret_cast<const char*>(frame_header), kFrameHeaderBytes);
  sent_bytes_ += length;
  control_frames_.give_back();
  while (length > 0) {
    std::string& piece = call->queue.front();
    const std::size_t count = std::min(length, piece.size() - call->sent_of_front);
    output_.append(piece, call->sent_of_front, count);
    call->sent_of_front += count;
    length -= count;
    if (call->sent_of_front == piece.size()) {
      queued_bytes_ -= piece.size();
      call->queue.pop_front();
      call->sent_of_front = 0;
    }
  }
  return 0;
}

}  // namespace graphbox::serve
