// GrowingBody: the body of a request as a string that grows as its bytes arrive.
//
// Beast's string_body reserves the declared length with the first byte: connections that send no
// more would hold memory that no BodyShare knows of.
#pragma once

#include <cstdint>

#include <boost/beast/core/error.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/none.hpp>
#include <boost/optional.hpp>

namespace paceline::serve {

struct GrowingBody : boost::beast::http::string_body {
    class reader : public boost::beast::http::string_body::reader {
    public:
        using boost::beast::http::string_body::reader::reader;

        void init(const boost::optional<std::uint64_t>& /*declared*/,
                  boost::beast::error_code& error) {
            boost::beast::http::string_body::reader::init(boost::none, error);
        }
    };
};

}  // namespace paceline::serve
