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
    switch (piece.stats.finish) {
        case FinishReason::GrammarFailed:
            status_ = Error{Errc::BadFile, kGrammarFailed};
            return;
        case FinishReason::Failed:
            status_ = Error{Errc::BadFile,
                            "no token can be drawn: no logit is a finite number, or the grammar of "
                            "the answer allows no token of the vocabulary"};
            return;
        default:
            status_ = Error{Errc::Cancelled, "the answer was cancelled"};
    }
}

std::string ResponseForm::failure(const ApiError& error) {
    return "data: " +
           error_json(error).dump(-1, ' ', false,
                                  nlohmann::ordered_json::error_handler_t::replace) +
           "\n\n";
}

}  // namespace paceline::serve
