// answer_request(): POST /v1/chat/completions, /v1/completions and /completion, from the body to
// the last byte of the answer. resume_stream(): GET /v1/streams/ID, from an event to the last byte.
//
//     body -> prepare (pool) -> submit -> [events or one body] -> the connection may go on
//
// A client that closes while it waits, while its prompt is processed or in the middle of the
// answer ends its answers, by the destructor of AnswerSet; unless it asked for resumption: then
// KeptStreams owns the answer. A client that reads slowly delays itself alone: the answers grow in
// their streams. One coroutine a request, on the I/O thread.
#pragma once

#include <string>
#include <utility>

#include <boost/asio/awaitable.hpp>

#include "launch/api/routes.hpp"
#include "launch/serve/http_context.hpp"
#include "launch/serve/http_stream.hpp"
#include "launch/serve/http_writer.hpp"

namespace paceline::serve {

/// A request that was admitted. It outlives its answer.
struct Asked {
    Route route = {};
    std::string body = {};
    std::string owner = {};          // AccessRules::owner_of()
    std::string last_event_id = {};  // the header; empty: absent
};

/// `asked`: of Route::is_answer(). Precondition: context.model. True: the connection may go
/// on.
boost::asio::awaitable<bool> answer_request(HttpStream& stream,
                                            HttpContext& context,
                                            const Asked& asked,
                                            const ResponseTerms& terms);
/// `asked`: Stream. Precondition and value as above.
boost::asio::awaitable<bool> resume_stream(HttpStream& stream,
                                           HttpContext& context,
                                           const Asked& asked,
                                           const ResponseTerms& terms);

}  // namespace paceline::serve
