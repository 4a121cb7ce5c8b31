#include "tensor/error.hpp"

#include <locale>
#include <sstream>
#include <utility>

namespace polyphase::detail {

void TextPart::write(std::ostream& out) const {
  switch (kind_) {
    case Kind::text:
      out << text_;
      break;
    case Kind::character:
      out << static_cast<char>(signed_);
      break;
    case Kind::floating:
      out << floating_;
      break;
    case Kind::signed_number:
      out << signed_;
      break;
    case Kind::unsigned_number:
      out << unsigned_;
      break;
    case Kind::streamed:
      streamed_.write(out, streamed_.value);
      break;
  }
}

std::string concat(std::initializer_list<TextPart> parts) {
  std::ostringstream stream;
  stream.imbue(std::locale::classic());
  for (const TextPart& part : parts) part.write(stream);
  return std::move(stream).str();
}

}  // namespace polyphase::detail
