#include "launch/api/reply.hpp"

#include "launch/api/messages/messages_error.hpp"
#include "launch/base/json_text.hpp"

namespace paceline::serve {

Reply reply_of(const ApiError& error) {
    return {.status = error.status,
            .body = json_text(error_json(error)) + "\n",
            .retry_after_s = error.retry_after_s,
            .allow = error.allow,
            .closes = error.ends,
            .error = error};
}

Reply in_form(Reply reply, ErrorForm form) {
    if (form == ErrorForm::Messages && reply.error)
        reply.body = json_text(messages_error(*reply.error)) + "\n";
    return reply;
}

}  // namespace paceline::serve
