// compile_for(): the grammar of a request, compiled before its answers are submitted, so that one
// that cannot be compiled is refused before anything of a response is written.
//
// The helpers of the service compile (launch/grammar); the I/O thread serves others meanwhile.
// On the I/O thread.
#pragma once

#include <optional>
#include <utility>  // before Boost.Asio, which uses std::exchange() without it

#include <boost/asio/awaitable.hpp>

#include "launch/api/api_error.hpp"
#include "launch/api/prepare_answers.hpp"
#include "launch/serve/http_context.hpp"
#include "launch/serve/http_stream.hpp"

namespace paceline::serve {

/// Gives each order its compiled grammar; does nothing where none is asked for. Of tools that may
/// be called, one that goes over a limit gives way to a looser one, and that to none: an agent has
/// schemas that fit no limit. The error: 400 naming the field, with the reason of the library or
/// the limit that was exceeded; 503 if too many wait.
boost::asio::awaitable<std::optional<ApiError>> compile_for(PreparedAnswers& prepared,
                                                            HttpStream& stream,
                                                            HttpContext& context);

}  // namespace paceline::serve
