// Control tokens that a file stores as text: those that begin or end a text or a turn.
//
// Files of some converters and authors give such a token the type of text. An answer would show it
// and go on, and a user who writes it could end his turn, so the readers of GGUF files and folders
// correct its kind here. Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ipc/base/ids.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

/// Whether a control token of this text ends a text or a turn in a family of models that the
/// readers support.
[[nodiscard]] bool is_end_name(std::string_view text);

/// Makes `token`, which a key names, a control token. A single character (a line break) may end an
/// answer and is text all the same; a token of a byte is its byte. True: its kind was another one.
bool make_control(TokenizerData& data, TokenId token);

/// Makes control tokens of those that have a name by which these families begin or end a text or a
/// turn. An ordinary token of a byte-level vocabulary that merges make is a piece of text ("</s>"
/// of HTML) and stays one. Returns the tokens whose kind was another one.
[[nodiscard]] std::vector<TokenId> make_names_control(TokenizerData& data);

/// A sentence for ModelParts::remarks about `changed`, which is not empty.
[[nodiscard]] std::string control_remark(const TokenizerData& data,
                                         const std::vector<TokenId>& changed);

}  // namespace paceline
