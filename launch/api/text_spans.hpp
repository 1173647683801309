// text_spans(): which parts of a piece's text were candidates of the speculation, and whose.
//
//     [{"text": "The", "tokens": 1, "accepted": false, "by": "target"},
//      {"text": " sky is", "tokens": 2, "accepted": true, "by": "lookup"}]
//
// Neighbouring tokens of one origin are one span; the texts of the spans are the text of the piece.
// A token whose text is not certain yet (a stop text may follow, a character is not whole) counts
// in its own span with what was certain. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "launch/session/answer_stream.hpp"

namespace paceline::serve {

[[nodiscard]] nlohmann::ordered_json text_spans(const AnswerPiece& piece);

}  // namespace paceline::serve
