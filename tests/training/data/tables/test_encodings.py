"""`tables/text.py`: encodings of other days are found out, said, marked, or named. Real sentences throughout."""

import json
import pickle
from random import Random

import pytest

from training.data.tables.table import open_table
from training.data.tables.text import guess_encoding, named_encoding, scan
from training.errors import InputError

SENTENCES = {
    "Russian": (
        "Я купил новую книгу об истории России.",
        "Сегодня на улице очень холодно.",
        "Кошка спит на старом диване.",
    ),
    "Japanese": (
        "新しい歴史の本を買いました。",
        "今日は外がとても寒いです。",
        "猫が古いソファで寝ている。",
    ),
    "Chinese": ("我买了一本关于历史的新书。", "今天外面很冷。", "猫在旧沙发上睡觉。"),
    "traditional Chinese": ("我買了一本關於歷史的新書。", "今天外面很冷。", "貓在舊沙發上睡覺。"),
    "Korean": (
        "나는 역사에 관한 새 책을 샀다.",
        "오늘은 밖이 매우 춥다.",
        "고양이가 낡은 소파에서 자고 있다.",
    ),
    "Greek": (
        "Αγόρασα ένα νέο βιβλίο για την ιστορία.",
        "Σήμερα κάνει πολύ κρύο έξω.",
        "Η γάτα κοιμάται στον παλιό καναπέ.",
    ),
    "Turkish": (
        "Tarih hakkında yeni bir kitap aldım.",
        "Bugün dışarısı çok soğuk.",
        "Kedi eski kanepede uyuyor.",
    ),
    "Arabic": (
        "اشتريت كتابا جديدا عن التاريخ.",
        "الجو بارد جدا في الخارج اليوم.",
        "القطة نائمة على الأريكة القديمة.",
    ),
    "Thai": ("ฉันซื้อหนังสือเล่มใหม่เกี่ยวกับประวัติศาสตร์", "วันนี้ข้างนอกหนาวมาก", "แมวนอนหลับบนโซฟาเก่า"),
    "Polish": (
        "Kupiłem nową książkę o historii.",
        "Dzisiaj na dworze jest bardzo zimno, więc zostańmy w domu.",
        "Kot śpi na starej kanapie, a pies leży obok łóżka.",
    ),
    "Czech": (
        "Koupil jsem si novou knihu o dějinách.",
        "Dnes je venku velká zima.",
        "Kočka spí na staré pohovce.",
    ),
    "French": (
        "J’ai acheté un nouveau livre d’histoire très intéressant.",
        "Il fait très froid dehors aujourd’hui, c’est l’été en Australie.",
        "Le chat dort sur le vieux canapé, ça me plaît.",
    ),
    "German": (
        "Ich habe ein neues Buch über Geschichte gekauft.",
        "Heute ist es draußen sehr kalt.",
        "Die Katze schläft auf dem alten Sofa.",
    ),
}
ENCODINGS = {
    "Russian": ("cp1251", "koi8_r", "iso8859_5", "utf-8"),
    "Japanese": ("cp932", "euc_jp", "iso2022_jp", "utf-16"),
    "Chinese": ("gb18030",),
    "traditional Chinese": ("big5",),
    "Korean": ("cp949",),
    "Greek": ("cp1253",),
    "Turkish": ("cp1254",),
    "Arabic": ("cp1256",),
    "Thai": ("cp874",),
    "Polish": ("cp1250", "iso8859_2"),
    "Czech": ("cp1250", "iso8859_2"),
    "French": ("cp1252", "mac_roman", "utf-8"),
    "German": ("cp1252", "mac_roman", "cp1250", "cp1254"),
}
FILES = [
    (encoding, language) for language, encodings in ENCODINGS.items() for encoding in encodings
]


def pairs(language):
    return list(
        zip(SENTENCES[language], SENTENCES[language][1:] + SENTENCES[language][:1], strict=True)
    )


def write(path, language, encoding):
    rows = "".join(f'"{first}","{second}",3\n' for first, second in pairs(language))
    path.write_bytes(("sentence1,sentence2,score\n" + rows).encode(encoding))
    return path


def cells(table):
    return [
        pair
        for batch in table.batches()
        for pair in zip(batch.rows["sentence1"], batch.rows["sentence2"], strict=True)
    ]


@pytest.mark.parametrize(("encoding", "language"), FILES)
def test_tables_are_read_in_every_encoding_without_loss(tmp_path, encoding, language):
    """Also with the encoding's name; a single row is opened at least."""
    path = write(tmp_path / "pairs.csv", language, encoding)
    table = open_table(path)
    assert cells(table) == pairs(language)
    notices = [remark for remark in table.remarks if "is not UTF-8" in remark]
    assert len(notices) == (not encoding.startswith(("utf", "iso2022")))
    assert table.is_plain == (not notices)
    table = open_table(path, encoding=encoding)
    assert cells(table) == pairs(language)
    assert not [remark for remark in table.remarks if "a guess" in remark]
    for first, second in pairs(language):
        path.write_bytes(f"sentence1,sentence2\n{first},{second}\n".encode(encoding))
        assert len(cells(open_table(path))) == 1


def test_lines_and_json_are_read_in_other_encodings_too(tmp_path):
    (tmp_path / "a.txt").write_bytes("\n".join(SENTENCES["Russian"]).encode("koi8_r"))
    lines = open_table(tmp_path / "a.txt", lines=True)
    assert next(lines.batches()).rows["sentence"] == list(SENTENCES["Russian"])
    assert "KOI8-R" in lines.remarks[0]
    rows = "\n".join(
        json.dumps({"sentence": text}, ensure_ascii=False) for text in SENTENCES["Japanese"]
    )
    (tmp_path / "a.jsonl").write_bytes(rows.encode("cp932"))
    assert next(open_table(tmp_path / "a.jsonl").batches()).rows["sentence"] == list(
        SENTENCES["Japanese"]
    )


def test_lines_of_another_encoding_among_good_ones_are_marked(tmp_path):
    good = [("déjà vu", f"Straße {i}") for i in range(1_000)]
    path = tmp_path / "mixed.csv"
    old = b"".join(f"café crème,garçon {i}\n".encode("cp1252") for i in range(150))
    path.write_bytes(
        b"sentence1,sentence2\n" + b"".join(f"{a},{b}\n".encode() for a, b in good) + old
    )
    table = open_table(path)
    assert cells(table)[:1_001] == [*good, ("caf\ufffd cr\ufffdme", "gar\ufffdon 0")]
    notes = {
        batch.first_row + at: note for batch in table.batches() for at, note in batch.notes.items()
    }
    assert set(notes) == set(range(1_001, 1_151))
    assert table.remarks == ("Bytes that are not UTF-8 are read as �; their rows are marked.",)


@pytest.mark.parametrize("encoding", ["cp1251", "koi8_r", "iso8859_5"])
@pytest.mark.parametrize(
    "text",
    [
        "Лена ест суп {} раз.",
        "Сегодня в Москве идёт снег, {} см.",
        "Мощность {} кВт, частота 50 мГц, уровень 5 дБ.",
    ],
)
def test_short_lines_of_cyrillic_keep_small_letters_and_capitals(encoding, text):
    lines = "".join(f"{text.format(i)}\n" for i in range(24))
    assert lines.encode(encoding).decode(guess_encoding(lines.encode(encoding))) == lines


@pytest.mark.parametrize("encoding", ["cp1251", "koi8_r"])
@pytest.mark.parametrize(
    "more", ["МегаФон и СберБанк, айФон", "НОВОСТИ ДНЯ В МОСКВЕ", "уровень 5 дБ, 3 кВт"]
)
def test_capitals_inside_words_exchange_nothing(encoding, more):
    text = "\n".join([*SENTENCES["Russian"], *[more] * 10])
    assert guess_encoding(text.encode(encoding)) == encoding


def test_a_guessed_encoding_is_told_with_words_and_how_to_change_it(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("plain\ncafé\nthé\ncrème\nété\n".encode("cp1252"))
    [remark] = scan(path).remarks
    assert remark.startswith(
        "The text is not UTF-8; it is read as Windows-1252, a guess: 'café', 'thé', 'crème'."
    )
    assert "?encoding=" in remark


def test_names_of_encodings_are_taken_as_people_write_them(tmp_path):
    path = tmp_path / "a.txt"
    assert named_encoding(" Windows-1251 ") == "cp1251"
    assert named_encoding("Shift_JIS") == "shift_jis"
    assert named_encoding("UTF8") == "utf-8"
    # It decodes to halves of characters, which no output can hold.
    with pytest.raises(InputError, match="there is no text encoding 'UTF-7'"):
        named_encoding("UTF-7")
    path = write(tmp_path / "pairs.csv", "Russian", "cp1251")
    table = open_table(path, encoding="utf-8")
    assert table.remarks == ("Bytes that are not UTF-8 are read as �; their rows are marked.",)


@pytest.mark.parametrize("name", ["klingon", "", "hex", "x" * 1_000, "utf-8\0"])
def test_a_name_of_no_text_encoding_is_refused(name):
    with pytest.raises(InputError, match="there is no text encoding"):
        named_encoding(name)


@pytest.mark.parametrize(
    ("encoding", "pair"),
    [
        *(("big5", pair) for pair in pairs("traditional Chinese")),
        *(
            ("cp1252", (text, "plain"))
            for text in ("It costs £5.", "© 2020", "50% – done", "naïve café", "3 µm")
        ),
    ],
)
def test_one_row_is_enough_for_big5_and_for_signs_of_windows_1252(tmp_path, encoding, pair):
    path = tmp_path / "row.csv"
    path.write_bytes(("sentence1,sentence2\n" + ",".join(pair) + "\n").encode(encoding))
    assert cells(open_table(path)) == [pair]


@pytest.mark.parametrize("size", [200, 5_000])
def test_random_bytes_are_no_text(tmp_path, size):
    random = Random(size)
    path = tmp_path / "random.csv"
    for _ in range(300):
        path.write_bytes(random.randbytes(size))
        with pytest.raises(InputError):
            open_table(path)


@pytest.mark.parametrize(
    "content",
    [
        b"\x7fELF\x02\x01\x01" + bytes(60),
        b"ID3\x04\0\0\0\0\0\x23TSSE\0\0\0\x0f\0\0\x03Lavf" + bytes(40),
        b"\xff\xfb\x90\x64\0\x0f\xf0" + bytes(60),
        pickle.dumps({"sentence1": ["a"], "sentence2": ["b"]}),
    ],
    ids=["ELF", "MP3", "MP3 without tags", "pickle"],
)
def test_other_formats_under_the_name_of_a_table_are_no_text(tmp_path, content):
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"table\.csv"):
        open_table(path)
