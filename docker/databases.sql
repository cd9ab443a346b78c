-- Two databases, because both keep their schema revision in a table of the same name.
CREATE DATABASE airflow;
CREATE DATABASE tiering;
