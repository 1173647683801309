#include "launch/api/response_form.hpp"

#include <nlohmann/json.hpp>

#include "launch/api/answer_report.hpp"

namespace paceline::serve {

void ResponseForm::check_end(const AnswerPiece& piece) {
    if (!piece.status) {
        status_ = piece.status;
        return;
    }
    if (finish_reason(piece.stats.finish) != nullptr) return;
    const bool failed = piece.stats.finish == FinishReason::Failed;
    status_ = Error{
        failed ? Errc::BadFile : Errc::Cancelled,
        failed ? "no token can be drawn: no logit is a finite number" : "the answer was cancelled"};
}

std::string ResponseForm::failure(const ApiError& error) {
    return "data: " +
           error_json(error).dump(-1, ' ', false,
                                  nlohmann::ordered_json::error_handler_t::replace) +
           "\n\n";
}

}  // namespace paceline::serve
