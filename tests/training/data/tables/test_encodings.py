"""Text files in encodings of other days: found out, said, marked, or named by the user. Real sentences throughout."""

import json
import pickle
from random import Random

import pytest

from training.data.tables.table import open_table
from training.data.tables.text import guess_encoding, named_encoding, scan
from training.errors import InputError

SENTENCES = {
    "Russian": (
        "Мужчина играет на гитаре в парке.",
        "Две собаки бегут по зелёной траве.",
        "Женщина режет лук на кухне.",
        "Дети смотрят телевизор после школы.",
        "Самолёт взлетает рано утром.",
        "Я купил новую книгу об истории России.",
        "Сегодня на улице очень холодно.",
        "Кошка спит на старом диване.",
    ),
    "Japanese": (
        "男性が公園でギターを弾いている。",
        "二匹の犬が緑の草の上を走っています。",
        "女性が台所で玉ねぎを切っている。",
        "子供たちは放課後テレビを見ます。",
        "飛行機は早朝に離陸します。",
        "新しい歴史の本を買いました。",
        "今日は外がとても寒いです。",
        "猫が古いソファで寝ている。",
    ),
    "Chinese": (
        "一个男人在公园里弹吉他。",
        "两只狗在绿色的草地上奔跑。",
        "一位女士在厨房里切洋葱。",
        "孩子们放学后看电视。",
        "飞机清晨起飞。",
        "我买了一本关于历史的新书。",
        "今天外面很冷。",
        "猫在旧沙发上睡觉。",
    ),
    "traditional Chinese": (
        "一個男人在公園裡彈吉他。",
        "兩隻狗在綠色的草地上奔跑。",
        "一位女士在廚房裡切洋蔥。",
        "孩子們放學後看電視。",
        "飛機清晨起飛。",
        "我買了一本關於歷史的新書。",
        "今天外面很冷。",
        "貓在舊沙發上睡覺。",
    ),
    "Korean": (
        "한 남자가 공원에서 기타를 치고 있다.",
        "두 마리의 개가 푸른 잔디 위를 달린다.",
        "한 여자가 부엌에서 양파를 썰고 있다.",
        "아이들은 방과 후에 텔레비전을 본다.",
        "비행기는 이른 아침에 이륙한다.",
        "나는 역사에 관한 새 책을 샀다.",
        "오늘은 밖이 매우 춥다.",
        "고양이가 낡은 소파에서 자고 있다.",
    ),
    "Greek": (
        "Ένας άντρας παίζει κιθάρα στο πάρκο.",
        "Δύο σκυλιά τρέχουν στο πράσινο γρασίδι.",
        "Μια γυναίκα κόβει κρεμμύδια στην κουζίνα.",
        "Τα παιδιά βλέπουν τηλεόραση μετά το σχολείο.",
        "Το αεροπλάνο απογειώνεται νωρίς το πρωί.",
        "Αγόρασα ένα νέο βιβλίο για την ιστορία.",
        "Σήμερα κάνει πολύ κρύο έξω.",
        "Η γάτα κοιμάται στον παλιό καναπέ.",
    ),
    "Turkish": (
        "Bir adam parkta gitar çalıyor.",
        "İki köpek yeşil çimenlerin üzerinde koşuyor.",
        "Bir kadın mutfakta soğan doğruyor.",
        "Çocuklar okuldan sonra televizyon izliyor.",
        "Uçak sabah erkenden kalkıyor.",
        "Tarih hakkında yeni bir kitap aldım.",
        "Bugün dışarısı çok soğuk.",
        "Kedi eski kanepede uyuyor.",
    ),
    "Arabic": (
        "رجل يعزف على الجيتار في الحديقة.",
        "كلبان يركضان على العشب الأخضر.",
        "امرأة تقطع البصل في المطبخ.",
        "يشاهد الأطفال التلفاز بعد المدرسة.",
        "تقلع الطائرة في الصباح الباكر.",
        "اشتريت كتابا جديدا عن التاريخ.",
        "الجو بارد جدا في الخارج اليوم.",
        "القطة نائمة على الأريكة القديمة.",
    ),
    "Polish": (
        "Mężczyzna gra na gitarze w parku.",
        "Dwa psy biegną po zielonej trawie.",
        "Kobieta kroi cebulę w kuchni.",
        "Dzieci oglądają telewizję po szkole.",
        "Samolot startuje wcześnie rano.",
        "Kupiłem nową książkę o historii.",
        "Dzisiaj na dworze jest bardzo zimno, więc zostańmy w domu.",
        "Kot śpi na starej kanapie, a pies leży obok łóżka.",
    ),
    "Czech": (
        "Muž hraje v parku na kytaru.",
        "Dva psi běží po zelené trávě.",
        "Žena krájí v kuchyni cibuli.",
        "Děti se po škole dívají na televizi.",
        "Letadlo vzlétá brzy ráno.",
        "Koupil jsem si novou knihu o dějinách.",
        "Dnes je venku velká zima.",
        "Kočka spí na staré pohovce.",
    ),
    "French": (
        "Un homme joue de la guitare dans le parc.",
        "Deux chiens courent sur l’herbe verte.",
        "Une femme coupe des oignons à la cuisine.",
        "Les élèves regardent la télévision après l’école.",
        "L’avion décolle tôt le matin, où qu’il aille.",
        "J’ai acheté un nouveau livre d’histoire très intéressant.",
        "Il fait très froid dehors aujourd’hui, c’est l’été en Australie.",
        "Le chat dort sur le vieux canapé, ça me plaît.",
    ),
    "German": (
        "Ein Mann spielt im Park Gitarre.",
        "Zwei Hunde laufen über das grüne Gras.",
        "Eine Frau schneidet in der Küche Zwiebeln.",
        "Die Schüler sehen nach der Schule fern.",
        "Das Flugzeug startet früh am Morgen.",
        "Ich habe ein neues Buch über Geschichte gekauft.",
        "Heute ist es draußen sehr kalt.",
        "Die Katze schläft auf dem alten Sofa.",
    ),
}
FILES = [
    (encoding, language)
    for encoding, languages in {
        "cp1251": ["Russian"],
        "koi8_r": ["Russian"],
        "iso8859_5": ["Russian"],
        "cp932": ["Japanese"],
        "euc_jp": ["Japanese"],
        "gb18030": ["Chinese"],
        "big5": ["traditional Chinese"],
        "cp949": ["Korean"],
        "cp1253": ["Greek"],
        "cp1254": ["Turkish", "German"],
        "cp1256": ["Arabic"],
        "cp1250": ["Polish", "Czech", "German"],
        "iso8859_2": ["Polish", "Czech"],
        "mac_roman": ["French", "German"],
        "cp1252": ["French", "German"],
        "utf-8": [*SENTENCES],
        "utf-16": [*SENTENCES],
    }.items()
    for language in languages
]


def pairs(language):
    return list(zip(SENTENCES[language], SENTENCES[language][1:] + SENTENCES[language][:1], strict=True))


def write(path, language, encoding):
    rows = "".join(f'"{first}","{second}",3\n' for first, second in pairs(language))
    path.write_bytes(("sentence1,sentence2,score\n" + rows).encode(encoding))
    return path


def cells(table):
    return [
        pair for batch in table.batches() for pair in zip(batch.rows["sentence1"], batch.rows["sentence2"], strict=True)
    ]


@pytest.mark.parametrize(("encoding", "language"), FILES)
def test_the_words_come_through(tmp_path, encoding, language):
    table = open_table(write(tmp_path / "pairs.csv", language, encoding))
    assert cells(table) == pairs(language)
    said = [remark for remark in table.remarks if "is not UTF-8" in remark]
    assert len(said) == (not encoding.startswith("utf"))
    assert table.is_plain == (not said)


@pytest.mark.parametrize(("encoding", "language"), [file for file in FILES if not file[0].startswith("utf")])
def test_the_encoding_can_be_named(tmp_path, encoding, language):
    table = open_table(write(tmp_path / "pairs.csv", language, encoding), encoding=encoding)
    assert cells(table) == pairs(language)
    assert not [remark for remark in table.remarks if "certainty" in remark]


def test_lines_and_json_too(tmp_path):
    (tmp_path / "a.txt").write_bytes("\n".join(SENTENCES["Russian"]).encode("koi8_r"))
    lines = open_table(tmp_path / "a.txt", lines=True)
    assert next(lines.batches()).rows["sentence"] == list(SENTENCES["Russian"])
    assert "KOI8-R" in lines.remarks[0]
    rows = "\n".join(json.dumps({"sentence": text}, ensure_ascii=False) for text in SENTENCES["Japanese"])
    (tmp_path / "a.jsonl").write_bytes(rows.encode("cp932"))
    assert next(open_table(tmp_path / "a.jsonl").batches()).rows["sentence"] == list(SENTENCES["Japanese"])


def test_a_thousand_good_lines_stay_good_beside_150_of_another_encoding(tmp_path):
    good = [("déjà vu", f"Straße {i}") for i in range(1_000)]
    old = [("café crème", f"garçon {i}") for i in range(150)]
    path = tmp_path / "mixed.csv"
    path.write_bytes(
        b"sentence1,sentence2\n"
        + b"".join(f"{a},{b}\n".encode() for a, b in good)
        + b"".join(f"{a},{b}\n".encode("cp1252") for a, b in old)
    )
    table = open_table(path)
    assert cells(table) == good + old
    notes = {batch.first_row + at: note for batch in table.batches() for at, note in batch.notes.items()}
    assert set(notes) == set(range(1_001, 1_151))
    assert set(notes.values()) == {"is not UTF-8 as other rows are"}
    assert "150 lines are not UTF-8 as the others, and read as Windows-1252" in " ".join(table.remarks)


@pytest.mark.parametrize("encoding", ["cp1251", "koi8_r", "iso8859_5"])
@pytest.mark.parametrize(
    "text",
    [
        *("Кот номер {} спит.", "Лена ест суп {} раз.", "Сегодня в Москве идёт снег, {} см."),
        "Мощность {} кВт, частота 50 мГц, уровень 5 дБ.",
    ],
)
def test_short_lines_of_cyrillic_are_not_read_with_small_letters_and_capitals_exchanged(encoding, text):
    lines = "".join(f"{text.format(i)}\n" for i in range(24))
    assert lines.encode(encoding).decode(guess_encoding(lines.encode(encoding)).encoding) == lines


@pytest.mark.parametrize("encoding", ["cp1251", "koi8_r"])
@pytest.mark.parametrize("more", ["МегаФон и СберБанк, айФон", "НОВОСТИ ДНЯ В МОСКВЕ", "уровень 5 дБ, 3 кВт"])
def test_capitals_inside_words_exchange_nothing(encoding, more):
    text = "\n".join([*SENTENCES["Russian"], *[more] * 10])
    assert guess_encoding(text.encode(encoding)).encoding == encoding


def test_a_low_certainty_asks_and_names_are_taken_as_people_write_them(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("5\xa0000 people\n".encode("cp1252"))
    assert "Do words look wrong? Then name its encoding." in scan(path).remarks
    assert len(scan(write(path, "Russian", "cp1251")).remarks) == 1
    assert named_encoding(" Windows-1251 ") == "cp1251"
    assert named_encoding("Shift_JIS") == "shift_jis"
    assert named_encoding("UTF8") == "utf-8"
    path = write(tmp_path / "pairs.csv", "Russian", "cp1251")
    table = open_table(path, encoding="utf-8")
    assert table.remarks == ("Bytes that are not UTF-8 are read as �; their rows are marked.",)


@pytest.mark.parametrize("name", ["klingon", "", "hex", "rot13", "base64", "x" * 1_000, "utf-8\0"])
def test_a_name_of_no_text_encoding_is_refused(tmp_path, name):
    with pytest.raises(InputError, match="there is no text encoding"):
        named_encoding(name)


@pytest.mark.parametrize(("encoding", "language"), [file for file in FILES if not file[0].startswith("utf")])
def test_one_row_of_a_real_sentence_is_opened(tmp_path, encoding, language):
    for first, second in pairs(language):
        path = tmp_path / "row.csv"
        path.write_bytes(f"sentence1,sentence2\n{first},{second}\n".encode(encoding))
        assert open_table(path).row_estimate == 1


@pytest.mark.parametrize("pair", pairs("traditional Chinese"))
def test_one_row_of_big5_is_no_shift_jis(tmp_path, pair):
    path = tmp_path / "row.csv"
    path.write_bytes(("sentence1,sentence2\n" + ",".join(pair) + "\n").encode("big5"))
    assert cells(open_table(path)) == [pair]


@pytest.mark.parametrize(
    "text",
    [
        "It costs £5.",
        "5\xa0000 people",
        "© 2020",
        "50% – done",
        "he said “yes”",
        "naïve café",
        "§ 5 of the law",
        "3 µm",
    ],
)
def test_english_from_windows_with_a_sign_or_two(tmp_path, text):
    path = tmp_path / "row.csv"
    path.write_bytes(f"sentence1,sentence2\n{text},plain\n".encode("cp1252"))
    assert cells(open_table(path)) == [(text, "plain")]


@pytest.mark.parametrize("size", [200, 1_000, 5_000, 20_000])
def test_random_bytes_are_no_text(tmp_path, size):
    random = Random(size)
    path = tmp_path / "random.csv"
    for _ in range(300):
        path.write_bytes(random.randbytes(size))
        with pytest.raises(InputError):
            open_table(path)


@pytest.mark.parametrize(
    "content",
    {
        "PNG": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(20),
        "PDF": b"%PDF-1.7\n1 0 obj\n<< /Type /Catalog >>\nendobj\n",
        "ELF": b"\x7fELF\x02\x01\x01" + bytes(60),
        "MP3": b"ID3\x04\0\0\0\0\0\x23TSSE\0\0\0\x0f\0\0\x03Lavf" + bytes(40),
        "MP3 without tags": b"\xff\xfb\x90\x64\0\x0f\xf0" + bytes(60),
        "SQLite": b"SQLite format 3\0\x10\0" + bytes(80),
        "pickle": pickle.dumps({"sentence1": ["a"], "sentence2": ["b"]}),
        "ZIP": b"PK\x03\x04\x14\0\0\0\x08\0" + bytes(30),
    }.items(),
    ids=lambda item: item[0],
)
def test_other_formats_under_the_name_of_a_table_are_no_text(tmp_path, content):
    path = tmp_path / "table.csv"
    path.write_bytes(content[1])
    with pytest.raises(InputError, match=r"table\.csv"):
        open_table(path)
