"""Messages for users: whole where they are short, and never as long as what they quote."""

from training.errors import LONGEST_MESSAGE, InputError, UserFacingError


def test_a_message_is_kept_as_it_is():
    assert str(InputError("model 'x' is unknown; choose another")) == "model 'x' is unknown; choose another"
    assert str(UserFacingError()) == ""


def test_a_long_one_keeps_what_was_wrong_and_what_to_do():
    message = str(InputError(f"model {'x' * 1_000_000!r} is unknown; choose another"))
    assert message.startswith("model 'xxx")
    assert message.endswith("xxx' is unknown; choose another")
    assert len(message) <= LONGEST_MESSAGE + 3
