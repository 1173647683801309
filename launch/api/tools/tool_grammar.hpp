// answer_grammar(), tool_grammar(): the grammar of answers that may, or must, call tools, in the
// model's own form of calls: xgrammar's structural tag.
//
//     Auto      free text; behind the tag that opens a call nothing but a call
//     Required  a thought, if the model has them, then calls and nothing else
//
// A grammar that the request asks for itself begins behind the thought; where it is a JSON schema
// and tools may be called, an answer is one or the other. Blanks inside arguments are bounded.
// Pure.
#pragma once

#include "launch/api/tools/tool_request.hpp"
#include "launch/tool_calls/tool_format.hpp"
#include "model/grammar/grammar_spec.hpp"

namespace paceline::serve {

inline constexpr int kBlanksMax = 2;  // after each other, inside arguments

/// Nothing (GrammarKind::None): without tools; of Auto also where no tag opens a call, or text is
/// written with control tokens (`text_by_control`: those of a thought), which this grammar would
/// not name. Control tokens that open or close a call are named by it, so they are allowed.
[[nodiscard]] GrammarSpec tool_grammar(const ReplyFormat& format,
                                       const ToolRequest& tools,
                                       bool text_by_control);

/// The same with any object as the arguments of each function: less to compile.
[[nodiscard]] GrammarSpec looser_tool_grammar(const ReplyFormat& format,
                                              ToolRequest tools,
                                              bool text_by_control);

/// `asked`: of the request's own fields, may be none.
[[nodiscard]] GrammarSpec answer_grammar(const ReplyFormat& format,
                                         const ToolRequest& tools,
                                         const GrammarSpec& asked,
                                         bool text_by_control);

}  // namespace paceline::serve
